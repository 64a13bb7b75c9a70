// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.mutants;

import io.kvferry.multiconnector.composite.MultiEcCompositeTckTest;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.tck.faults.Interceptor;

import java.util.Optional;

/// Composites of encoder-cache connectors with a defect, like [CompositeMutants].
final class EcCompositeMutants {
    private EcCompositeMutants() {}

    /// Forgets deadlines, wakes, memory and handshakes.
    static class PassesNothingOn extends MultiEcCompositeTckTest {
        @Override
        protected EcConnectorProvider composite() {
            return Interceptor.wrap(
                    EcConnectorProvider.class,
                    super.composite(),
                    (_, arguments, proceed) -> {
                        if (arguments.length > 0 && arguments[0] instanceof SchedulerContext c) {
                            arguments[0] =
                                    new SchedulerContext(
                                            c.instance(),
                                            c.config(),
                                            c.options(),
                                            c.engine(),
                                            c.host().with(c.host().events(), () -> {}));
                        }
                        return switch (proceed.run()) {
                            case EcSchedulerConnector half -> deaf(half);
                            case EcWorkerConnector half -> wasteful(half);
                            case Object other -> other;
                            case null -> null;
                        };
                    });
        }

        private static EcSchedulerConnector deaf(EcSchedulerConnector half) {
            return CompositeMutants.instead(
                    EcSchedulerConnector.class,
                    CompositeMutants.instead(
                            EcSchedulerConnector.class, half, "onHandshakes", (_, _, _) -> null),
                    "pendingWork",
                    (_, _, _) -> Optional.empty());
        }

        private static EcWorkerConnector wasteful(EcWorkerConnector half) {
            return CompositeMutants.instead(
                    EcWorkerConnector.class, half, "provideMemory", CompositeMutants::wasted);
        }
    }

    /// As [CompositeMutants.DiesWithAChild].
    static class DiesWithAChild extends MultiEcCompositeTckTest {
        private final Trouble trouble = new Trouble();

        @Override
        protected EcConnectorProvider composite() {
            return Interceptor.wrap(
                    EcConnectorProvider.class,
                    super.composite(),
                    (_, arguments, proceed) -> {
                        if (arguments.length > 0) {
                            arguments[0] = trouble.watching(arguments[0]);
                        }
                        return switch (proceed.run()) {
                            case EcSchedulerConnector half ->
                                    CompositeMutants.instead(
                                            EcSchedulerConnector.class,
                                            half,
                                            "lookup",
                                            (_, _, go) ->
                                                    trouble.seen() ? LookupResult.MISS : go.run());
                            case EcWorkerConnector half ->
                                    CompositeMutants.completing(
                                            EcWorkerConnector.class, half, trouble::watching);
                            case Object other -> other;
                            case null -> null;
                        };
                    });
        }
    }
}
