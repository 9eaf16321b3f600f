"""A client behind a gateway, as one profile: the gateway edits first, and the client compacts by the usage that it sees then."""

from dataclasses import dataclass, replace

from palimpsest.audit.pricing.size_rules import SIZE_RULES
from palimpsest.core.policy import Plan, Policy
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.profiles.profile import Count, Profile
from palimpsest.wire.models.cards import ModelCard


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A policy of one of the two programs."""

    policy: Policy

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    @property
    def moments(self) -> frozenset[Moment]:
        """Its moments."""
        return self.policy.moments

    @property
    def shrinks(self) -> bool:
        """Whether the policy makes the view smaller."""
        return self.policy.shrinks


@dataclass(frozen=True, slots=True)
class InGateway(_Wrapped):
    """A policy of the gateway: it has the budget of the gateway, because the gateway knows nothing of the client's."""

    budget: Budget

    @property
    def moments(self) -> frozenset[Moment]:
        """Before each call: a gateway sees requests and nothing else."""
        return self.policy.moments & {"before_call"}

    def plan(self, situation: Situation) -> Plan:
        """Return what the policy proposes."""
        return self.policy.plan(replace(situation, budget=self.budget))


@dataclass(frozen=True, slots=True)
class InClient(_Wrapped):
    """A policy of the client: it counts by the rule of the client, where the session counts by that of the gateway."""

    count: Count
    counter: TokenCounter

    def plan(self, situation: Situation) -> Plan:
        """Return what the policy proposes."""
        used = self.count(situation.view, self.counter, situation.tools_tokens) + situation.incoming
        return self.policy.plan(replace(situation, tokens=self.counter.sizes_of(situation.view), used=used))


def behind_gateway(client: Profile, gateway: Profile, card: ModelCard) -> Profile:
    """Return the profile of a client behind a gateway: requests, breakpoints and compactions are the client's.

    It is for one session, because it keeps what was counted by the rule of the client.
    """
    budget, counter = gateway.budget(card), TokenCounter(SIZE_RULES[client.size_rule], drops_cached=card.cache_edits)
    first = [InGateway(policy, budget) for policy in gateway.policies if policy.moments & {"before_call"} and policy.shrinks]
    return replace(
        client,
        name=f"{client.name} behind {gateway.name}",
        policies=(*first, *(InClient(policy, client.count, counter) for policy in client.policies)),
        size_rule=gateway.size_rule,
        jobs=gateway.jobs,
        cache=gateway.cache,
    )
