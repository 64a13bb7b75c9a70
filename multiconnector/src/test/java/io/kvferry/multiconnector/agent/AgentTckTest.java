// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.Nested;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// An agent is a transfer backend like any other: the contract, run on agents over one and over
/// several backends, with both threading models and with limits that make it split.
class AgentTckTest {
    abstract static class OnAgent extends TransferBackendContract {
        private final AgentProvider provider = new AgentProvider(loops(), parts());

        abstract List<TestBackend> parts();

        TransferAgent.Loops loops() {
            return TransferAgent.Loops.THREADS;
        }

        final void damageNext() {
            provider.parts.forEach(TestBackend::damageNext);
        }

        @Override
        protected TransferBackendProvider provider() {
            return provider;
        }

        @Override
        protected Map<String, Object> options(String agent) {
            return Map.of();
        }

        static TestBackend part(String name, Object... options) {
            var map = new HashMap<String, Object>();
            for (int i = 0; i < options.length; i += 2) {
                map.put((String) options[i], options[i + 1]);
            }
            return new TestBackend(name, new ArrayList<>(), map);
        }
    }

    /// Opens agents over the same parts.
    private record AgentProvider(TransferAgent.Loops loops, List<TestBackend> parts)
            implements TransferBackendProvider {
        @Override
        public String name() {
            return "AGENT";
        }

        @Override
        public String description() {
            return "an agent over " + parts.size() + " backends";
        }

        @Override
        public SpiVersion.Range spiVersions() {
            return SpiVersion.Range.from(1, 0);
        }

        @Override
        public OptionSchema options() {
            return OptionSchema.NONE;
        }

        @Override
        public BackendCapabilities capabilities(OptionValues options) {
            return AgentCapabilities.of(
                    parts.stream().map(part -> part.capabilities(options)).toList(), loops);
        }

        @Override
        public TransferBackend open(BackendContext context) {
            return TransferAgent.open(
                    TransferAgent.Options.of(context.self(), Ranking.LISTED).withLoops(loops),
                    AgentPair.catalog(parts.toArray(TestBackend[]::new)),
                    AgentPair.choices(parts),
                    context.sink(),
                    context.events());
        }
    }

    @Nested
    class OverOneBackend extends OnAgent {
        @Override
        List<TestBackend> parts() {
            return List.of(part("A", "with", List.of("CHECKSUM")));
        }

        @Override
        protected boolean damageInTransit() {
            damageNext();
            return true;
        }
    }

    @Nested
    class OverAConfinedAndAConcurrentOne extends OnAgent {
        @Override
        List<TestBackend> parts() {
            return List.of(part("A", "threading", "confined"), part("B"));
        }
    }

    @Nested
    class OverAConfinedOneThatTheCallerSteps extends OnAgent {
        @Override
        TransferAgent.Loops loops() {
            return TransferAgent.Loops.CALLER;
        }

        @Override
        List<TestBackend> parts() {
            return List.of(part("A", "threading", "confined"));
        }
    }

    /// The first is lost with every transfer, so that each one fails over.
    @Nested
    class OverOneThatFailsAndAnother extends OnAgent {
        @Override
        List<TestBackend> parts() {
            var faulty = part("A", "without", List.of("CANCEL"));
            faulty.chaos = () -> TestBackend.Fault.FAILED;
            return List.of(faulty, part("B", "without", List.of("CANCEL")));
        }
    }

    @Nested
    class OverOneThatTakesLittle extends OnAgent {
        @Override
        List<TestBackend> parts() {
            return List.of(
                    part(
                            "A",
                            "threading",
                            "confined",
                            "max_bytes",
                            "48KiB",
                            "alignment",
                            512,
                            "without",
                            List.of("NOTIFY", "PER_DESCRIPTOR_RESULTS")));
        }
    }
}
