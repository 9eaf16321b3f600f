"""English words of software work that mean about the same; the first of a line stands for all of it."""

from functools import lru_cache
from typing import Final

from palimpsest.audit.words import plain_forms, stem

# One group to a line. What is done to things stands in `deeds`; here is what things are, what they are like and what happens to them.
_GROUPS = """
nested inside within
evaluation evaluate metric measure score
train training retrain retraining
budget spending expenditure
separate split apart
main primary principal
quality accuracy precision
answer reply response
support compatibility compatible supported
rule policy regulation
feature functionality capability
problem trouble difficulty
freeze hang stuck
random arbitrary
check verify validation
duplicate double twice repeated redundant
picture image photo figure screenshot
message notice notification
notify announce inform tell
mail email e-mail
folder directory dir
repository repo
database db datastore
document documentation docs readme manual
function method routine procedure
variable var
parameter param argument arg option flag switch
configuration config configurable setting settings preference
dependency dependencies library libraries package module
license licence licensed
pull-request pr prs pull-requests
endpoint api route
error exception failure fault
fail crash
bug defect issue
log logs logging logged
output prints printed
test tests testing suite
network internet offline
machine box host server computer
build builds built compile compiled compiling
folder folders
speed sped fast quick quickly faster quicker performance
slow sluggish slower lag laggy latency
interval frequency cadence period
second seconds sec secs
minute minutes min mins
hour hours hr hrs
day daily daytime days
night nightly nighttime overnight night-time
week weekly weeks
month monthly months
year yearly annual years
deadline due
time times timestamp timestamps clock
timezone zone
start begin
end finish complete
first initially
latest final recent newest
previous earlier former prior
old older legacy outdated
next following upcoming subsequent
consecutive successive
maximum max limit cap ceiling
minimum min
exact exactly precisely equal equals
approximate approximately roughly about around approx estimate rough
long duration length take last
large big huge bulky heavy size
small little tiny short brief compact
cause reason why root origin culprit
investigate investigation find found examine analyse analyze analysis track trace look inspect diagnose diagnosis research
explain explanation describe
show shows shown showing display displays displayed present render visible appear appears
hide hidden hides conceal invisible
name names naming named called title label
readable clear descriptive meaningful speaking
sort sorted sorting order ordered
write written writes wrote writing
read reads reading readonly read-only
translate translated translation localise localize
format formats formatted layout
signature interface prototype
schema structure
table tables
column columns field fields
row rows record records line lines
value values
amount number count quantity counts counted counting increment incremented tally
store stores stored storing save saves saved saving persist persisted
send sends sent sending transmit deliver dispatch emit
receive receives received receiving
load loads loaded loading
data dataset datasets
queue queued queues backlog
loss lose loses losing lost outage
restart reboot reboots restarts rebooting
retry retries retried retrying attempt attempts try tries
wait waits waiting delay pause
backoff back-off
page screen view panel pages screens
start-page homepage landing home
button buttons
user users visitor visitors
doctor doctors physician
customer customers buyer
employee staff
colleague coworker teammate
team group squad
production prod live
staging preview
local locally
replica mirror standby secondary
backup backups snapshot
encrypt encrypted encryption encrypting
password passwords passphrase credential credentials secret secrets
login signin sign-in log-in authenticate authentication auth
security secure safe safety
private confidential sensitive personal
mask redact anonymise anonymize
color colour colors colours
font typeface
dark night-mode
accent accents diacritic diacritics
plain simple vanilla ordinary pure
class classes
hierarchy inheritance
style convention conventions styling
comment comments
commit commits committed committing
push pushes pushed pushing
merge merges merged merging
review reviews reviewed reviewing
release releases released version versions
quarter quarters
postpone postponed defer deferred delayed later shelve shelved
partition partitioned partitioning split sharded shard
certify certified certification allowance budget
money cost costs price expense expensive
cheap inexpensive
memory ram heap
disk storage
processor cpu
thread threads
process processes
job jobs task tasks
schedule scheduled scheduler
script scripts
file files
path paths
link links url address
icon icons
mobile phone phones smartphone
desktop computer
browser browsers
mac macos
tab tabs
space spaces indentation indent
generated autogenerated auto-generated
manually by-hand
automatic automatically auto
configurable adjustable
everywhere throughout
unused dead obsolete deprecated
nobody none no-one
sign signed signing
invoice invoices bill bills billing
order orders
payment payments pay paid
tax vat
currency money
search find searching lookup query queries
filter filters filtering filtered
export exports exported exporting
import imports imported importing importer ingest
report reports reporting
chart graph plot diagram
panel panels
alert alerts alarm alarms warning warnings
monitor monitoring
cache caching cached caches
session sessions
token tokens
cookie cookies
header headers
sample sampling samples sampled
sensor sensors
driver drivers
packet packets
checksum crc
reading readings measurement measurements
station stations
operator operators
convince convinced persuade persuaded doubtful doubt sceptical skeptical unsure hesitant undecided
use uses using used usage utilise utilize employ
suspect suspects suspected suspicion
complain complaint annoyed annoying
exclude excluded excluding except excepted exception
inline inlined
coverage covered cover covers covering
percent percentage
accessible accessibility a11y
responsive responsiveness
text wording phrasing texts
suffice enough sufficient adequate
poll polling polls
sync synchronise synchronize synchronised synchronization
appointment booking
reminder reminders remind
customer-facing public external
internal
advance ahead beforehand
below under less beneath
above over exceed
another additional further extra
single one only
"""


def _table() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _GROUPS.split("\n"):
        words = line.split()
        for word in words:
            found.setdefault(word, f"={words[0]}")
    return found


_SAME: Final = _table()


@lru_cache(maxsize=20_000)
def concept(word: str) -> str:
    """What stands for a word and all that mean the same, or the word without its ending."""
    for form in plain_forms(word):
        if form in _SAME:
            return _SAME[form]
    return stem(word)
