// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.EcMutants.Mutant;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/// [EcMutants] with defects in holds, events, handshakes and resetting.
final class EcHoldMutants {
    private EcHoldMutants() {}

    static class NeverEndsHolds extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return EcMutants.reporting(
                    half,
                    completions ->
                            completions.stream()
                                    .filter(completion ->
                                            !(completion.id().subject().equals("both")
                                                    && completion.result()
                                                            instanceof Completion.Completed))
                                    .toList());
        }
    }

    static class HoldsWithoutClaimingIt extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, Feature.HOLD);
        }
    }

    static class HoldsForNobody extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Interceptor.wrap(
                    EcSchedulerConnector.class,
                    half,
                    (_, arguments, proceed) -> {
                        var result = proceed.run();
                        return result instanceof FinishDecision
                                ? new FinishDecision.Hold(
                                        TransferId.save(String.valueOf(arguments[0]), 0),
                                        Deadline.in(Duration.ofSeconds(1)),
                                        TransferParams.EMPTY)
                                : result;
                    });
        }
    }

    static class AnnouncesNothing extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Defects.telling(EcWorkerConnector.class, half, _ -> List.of());
        }
    }

    static class AnnouncesTwice extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Defects.telling(EcWorkerConnector.class, half, Defects::twice);
        }
    }

    static class ClaimsHandshakes extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Defects.instead(
                    EcWorkerConnector.class, half, "handshake", (_, _, _) -> Payload.EMPTY);
        }

        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Defects.instead(
                    EcSchedulerConnector.class, half, "onHandshakes", (_, _, _) -> null);
        }
    }

    static class HidesHandshakes extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, Feature.HANDSHAKE);
        }
    }

    static class HidesItsEvents extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return Defects.without(claimed, Feature.EVENTS);
        }
    }

    static class ResetsNothing extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Defects.instead(
                    EcSchedulerConnector.class,
                    half,
                    "resetCache",
                    (_, _, _) -> CompletableFuture.completedStage(true));
        }
    }
}
