"""Acts on certificates for a planner: accepts a choice, looks closer, plans again, or brakes.

``Policy`` decides one control step after another. docs/certificates.md says what a certificate
means, what each remedy does to it, and what the remedies were measured to be worth.

    policy = Policy(remedies=(Decision.SHRINK, Decision.REPLAN), same_action=0.1, budget_ms=100)

    def look(frame, **options):  # what the policy asks for takes precedence
        view = {"perturbations": noise, "draws": 4, **options}
        return client.plan("lewm-pusht", frame, goal, **view)

    while not done:
        step = policy.step(camera.frames, look, planner.pools)
        act(step.plan[0] if step.plan is not None else stand_still)
"""

from acpc_client.planning.async_policy import AsyncPolicy
from acpc_client.planning.policy import Policy
from acpc_client.planning.rule import Attempt, ControlStep, Decision, Pools

__all__ = ["AsyncPolicy", "Attempt", "ControlStep", "Decision", "Policy", "Pools"]
