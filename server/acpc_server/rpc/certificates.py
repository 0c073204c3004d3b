"""Certificates as the wire's messages."""

from __future__ import annotations

from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_server.interactive import PairedPlan, PoolAnswer, Selection, ViewCertificate
from acpc_server.rpc import codec
from acpc_server.scheduling import RequestContext


def write_pool(
    answer: PoolAnswer, request_id: str, context: RequestContext, started: float
) -> pb.CertifyPoolResponse:
    """The message of one pool's certificates."""
    return pb.CertifyPoolResponse(
        request_id=request_id,
        clean_costs=codec.write_tensor(answer.clean_costs),
        clean_winner=answer.clean_winner,
        clean_elites=answer.clean_elites,
        views=[_write_view(view) for view in answer.views],
        top1_certified_fraction=answer.top1_certified_fraction,
        elite_certified_fraction=answer.elite_certified_fraction,
        certified_severities=[
            pb.CertifiedSeverity(kind=entry.kind, top1=entry.top1, elite=entry.elite)
            for entry in answer.certified_severities
        ],
        receipt=codec.write_receipt(answer.receipt),
        timing=codec.write_timings(context, started),
    )


def write_paired_plan(paired: PairedPlan) -> pb.PairedPlan:
    """The message of one view's CEM run beside the clean one."""
    return pb.PairedPlan(
        spec_index=paired.view.spec_index,
        draw=paired.view.draw,
        perturbed_plan=codec.write_tensor(paired.plan.numpy()),
        iterations=[
            pb.PairedIteration(
                elite=_write_selection(iteration.elite),
                top1=_write_selection(iteration.top1),
                same_elites=iteration.same_elites,
                acpc_one_step_q90=iteration.acpc_one_step_q90,
                acpc_q90=iteration.acpc_q90,
            )
            for iteration in paired.iterations
        ],
        first_divergence=paired.first_divergence,
        certified=paired.certified,
        selection_regret=paired.selection_regret,
    )


def _write_view(view: ViewCertificate) -> pb.ViewCertificate:
    return pb.ViewCertificate(
        spec_index=view.view.spec_index,
        draw=view.view.draw,
        perturbed_costs=codec.write_tensor(view.perturbed_costs),
        displacements=codec.write_tensor(view.displacements),
        bounds=codec.write_tensor(view.bounds),
        chained_bounds=codec.write_tensor(view.chained_bounds),
        acpc_one_step=codec.write_tensor(view.acpc_one_step),
        acpc=codec.write_tensor(view.acpc),
        perturbed_winner=view.perturbed_winner,
        excess_cost=view.excess_cost,
        excess_cost_bound=view.excess_cost_bound,
        top1=_write_selection(view.top1),
        elite=None if view.elite is None else _write_selection(view.elite),
        acpc_one_step_q90=view.acpc_one_step_q90,
        acpc_q90=view.acpc_q90,
    )


def _write_selection(selection: Selection) -> pb.SelectionCertificate:
    return pb.SelectionCertificate(certified=selection.certified, margin=selection.margin)
