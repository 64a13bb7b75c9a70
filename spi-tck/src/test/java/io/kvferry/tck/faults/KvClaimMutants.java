// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.KvMutants.Mutant;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/// [KvMutants] with defects in one feature each, claimed or not.
final class KvClaimMutants {
    private KvClaimMutants() {}

    /// A plugin whose scheduler half finds its plans on the way to the worker half in a static
    /// field.
    static class SharesAStaticField extends Mutant {
        @Override
        protected KvConnectorProvider provider() {
            return new StaticFieldProvider();
        }
    }

    static class TakesLayersAtTheEnd extends Mutant {
        @Override
        String save() {
            return "layerwise";
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            return Defects.instead(WorkerConnector.class, half, "saveLayer", (_, _, _) -> null);
        }
    }

    static class QueuesWithoutBound extends Mutant {
        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            return Optional.of(options(name()));
        }

        @Override
        protected Duration limit() {
            return Duration.ofSeconds(1); // for refusals that do not come
        }
    }

    /// Once it has refused a load it refuses all.
    static class RefusesForEver extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var refused = new boolean[1];
            return KvMutants.reporting(
                    half,
                    completions ->
                            completions.stream()
                                    .map(completion -> again(completion, refused))
                                    .toList());
        }

        private static Completion again(Completion completion, boolean[] refused) {
            refused[0] |= completion.result() instanceof Completion.Failed;
            return !refused[0]
                    ? completion
                    : new Completion(
                            completion.id(),
                            completion.rank(),
                            new Completion.Failed(
                                    new Failure(ErrorCode.BACKPRESSURE, "mutant"), List.of()));
        }
    }

    static class ClaimsLeases extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.with(claimed, ConnectorCapabilities.Feature.BLOCK_LEASES);
        }
    }

    static class ClaimsHandshakes extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return Defects.instead(
                    WorkerConnector.class, half, "handshake", (_, _, _) -> Payload.EMPTY);
        }

        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return Defects.instead(
                    SchedulerConnector.class, half, "onHandshakes", (_, _, _) -> null);
        }
    }

    static class HidesHandshakes extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, ConnectorCapabilities.Feature.HANDSHAKE);
        }
    }

    static class HidesItsStore extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, ConnectorCapabilities.Feature.CONTENT_ADDRESSED);
        }

        @Override
        protected boolean handsOff() {
            return false;
        }
    }

    /// Leaves the method of a feature that it claims to its default.
    static class ClaimsWhatItCannot extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return Defects.instead(
                    SchedulerConnector.class,
                    half,
                    "resetCache",
                    (_, _, _) -> CompletableFuture.completedStage(false));
        }
    }

    static class HidesWhatItDoes extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, ConnectorCapabilities.Feature.EVENTS);
        }
    }

    /// Tells of what it has stored two steps late, and so after a reset.
    static class AnnouncesLate extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var before = new ArrayDeque<>(List.of(List.<CacheEvent>of(), List.<CacheEvent>of()));
            return Defects.instead(
                    WorkerConnector.class,
                    half,
                    "report",
                    (_, _, proceed) -> {
                        if (!(proceed.run() instanceof StepReport report)) {
                            throw new IllegalStateException("no report");
                        }
                        before.add(report.events());
                        return new StepReport(
                                report.rank(),
                                report.step(),
                                report.completions(),
                                report.payload(),
                                report.stats(),
                                before.remove());
                    });
        }
    }

    static final class SignalsNothing extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.with(claimed, ConnectorCapabilities.Feature.SIGNALS);
        }
    }
}
