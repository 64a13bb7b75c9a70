// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.tck.faults.FaultPlan.Fault;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.UnaryOperator;

/// The reports of one worker half under a [FaultPlan]: completions are changed, lost, held back for
/// some steps or until they are revoked, or told twice.
///
/// Threading: the step thread of the half.
final class FaultyReports {
    private static final int LATE_STEPS = 3;

    private final FaultPlan plan;
    private final List<Late> late = new ArrayList<>();
    private final Set<TransferId> hanging = new HashSet<>();
    private final List<TransferId> revoked = new ArrayList<>();

    /// A completion held back, and how many reports it still waits.
    private record Late(Completion completion, int steps) {}

    FaultyReports(FaultPlan plan) {
        this.plan = plan;
    }

    /// Before each step: what the engine wants back.
    void begin(WorkerStep step) {
        step.revoked().stream().filter(hanging::remove).forEach(revoked::add);
    }

    StepReport disturb(StepReport report, UnaryOperator<Completion> change) {
        var out = new ArrayList<Completion>();
        var waiting = List.copyOf(late);
        late.clear();
        for (var held : waiting) {
            if (held.steps <= 1) {
                out.add(held.completion);
            } else {
                late.add(new Late(held.completion, held.steps - 1));
            }
        }
        for (var id : revoked) {
            out.add(new Completion(id, report.rank(), new Completion.Revoked()));
        }
        revoked.clear();
        for (var completion : report.completions()) {
            boolean asked = completion.result() instanceof Completion.Revoked;
            if (!asked && plan.strikes(Fault.HANG)) {
                hanging.add(completion.id());
                continue;
            }
            var changed = change.apply(completion);
            if (plan.strikes(Fault.LOSE)) {
                continue;
            }
            if (plan.strikes(Fault.DELAY)) {
                late.add(new Late(changed, LATE_STEPS));
                continue;
            }
            out.add(changed);
            if (plan.strikes(Fault.DUPLICATE)) {
                out.add(changed);
            }
        }
        return new StepReport(
                report.rank(),
                report.step(),
                out,
                report.payload(),
                report.stats(),
                report.events());
    }
}
