"""A client behind a gateway, as one profile: the gateway edits first, and the client compacts by the usage that it sees then."""

from dataclasses import dataclass, replace

from palimpsest.core.policy import Plan, Policy
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.budget import Budget
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard


@dataclass(frozen=True, slots=True)
class InGateway:
    """A policy of the gateway: it has the budget of the gateway, because the gateway knows nothing of the client's."""

    policy: Policy
    budget: Budget

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    @property
    def moments(self) -> frozenset[Moment]:
        """Before each call: a gateway sees requests and nothing else."""
        return self.policy.moments & {"before_call"}

    @property
    def shrinks(self) -> bool:
        """Whether the policy makes the view smaller."""
        return self.policy.shrinks

    def plan(self, situation: Situation) -> Plan:
        """Return what the policy proposes."""
        return self.policy.plan(replace(situation, budget=self.budget))


def behind_gateway(client: Profile, gateway: Profile, card: ModelCard) -> Profile:
    """Return the profile of a client behind a gateway: requests, breakpoints and compactions are the client's."""
    budget = gateway.budget(card)
    policies = tuple(InGateway(policy, budget) for policy in gateway.policies if policy.moments & {"before_call"} and policy.shrinks)
    return replace(
        client, name=f"{client.name} behind {gateway.name}", policies=(*policies, *client.policies), jobs=gateway.jobs, cache=gateway.cache
    )
