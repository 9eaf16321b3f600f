"""Finds and redacts secrets in texts, and holds credentials so that no text contains them."""

from palimpsest.core.redaction.credential import Credential as Credential
from palimpsest.core.redaction.search import CERTAIN_KINDS as CERTAIN_KINDS
from palimpsest.core.redaction.search import CLASSES as CLASSES
from palimpsest.core.redaction.search import Secret as Secret
from palimpsest.core.redaction.search import find_secrets as find_secrets
from palimpsest.core.redaction.search import redact as redact
