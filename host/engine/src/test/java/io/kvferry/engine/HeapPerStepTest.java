// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.observe.EventSink;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/// What a step leaves on the heap: with 256 running requests, nothing per request.
class HeapPerStepTest {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final int RUNNING = 256;
    private static final int ROUND = 500;
    private static final int MOST_ROUNDS = 60;

    private enum Ranks {
        /// On the scheduler thread.
        HERE(4096),
        /// Behind the frames of worker processes; what the scheduler thread allocates counts.
        BEHIND_FRAMES(8192);

        final long limit;

        Ranks(long limit) {
            this.limit = limit;
        }

        Workers workers() {
            return this == HERE
                    ? new Workers.InProcess()
                    : new Workers.Launched(new ThreadWorkers(_ -> new Host()), "");
        }
    }

    /// Code that is not compiled yet leaves more, so the least of several rounds counts.
    @ParameterizedTest
    @EnumSource(Ranks.class)
    void aStepLeavesNothingPerRequestOnTheHeap(Ranks ranks) {
        int tokens = ROUND * MOST_ROUNDS + 100;
        try (var engine =
                Engine.open(
                        EngineConfig.of(new NullRunner(), Path.of(""), Map.of())
                                .blockTokens(16)
                                .blockCount(RUNNING * (tokens / 16 + 3))
                                .stepTokens(1 << 20)
                                .maxRunning(RUNNING)
                                .workers(ranks.workers())
                                .closeLimit(Duration.ZERO))) {
            for (int i = 0; i < RUNNING; i++) {
                engine.submit(
                        GenerationRequest.of(new int[] {i, i}, SamplingParams.greedy(tokens)));
            }
            var patience = Deadline.in(Duration.ofSeconds(40));
            long least = Long.MAX_VALUE;
            for (int i = 0; i < MOST_ROUNDS && least > ranks.limit && !patience.passed(); i++) {
                long before = THREADS.getCurrentThreadAllocatedBytes();
                for (int step = 0; step < ROUND; step++) {
                    engine.step();
                }
                least =
                        Math.min(
                                least, (THREADS.getCurrentThreadAllocatedBytes() - before) / ROUND);
                assertThat(engine.stats().running()).isEqualTo(RUNNING);
            }
            assertThat(least).as("bytes per step").isLessThanOrEqualTo(ranks.limit);
        }
    }

    /// Computes nothing, so that only the engine allocates.
    private static final class NullRunner implements ModelRunnerProvider {
        @Override
        public String name() {
            return "null";
        }

        @Override
        public String description() {
            return "computes nothing";
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
        public Model open(ModelSource source) {
            var synthetic = new SyntheticProvider();
            var options = synthetic.options().read("null", Map.of());
            var tokenizer = synthetic.open(new ModelSource(Path.of(""), options)).tokenizer();
            return new NullModel(tokenizer);
        }
    }

    private record NullModel(Tokenizer tokenizer) implements Model {
        @Override
        public ModelInfo info() {
            return new ModelInfo(
                    "null",
                    "null",
                    "null-1",
                    ModelInfo.llamaLayers(1),
                    1,
                    1,
                    DType.UINT8,
                    KvLayout.LBNHC,
                    1,
                    256,
                    1 << 25,
                    List.of(),
                    0);
        }

        @Override
        public ModelRunner openRunner(RunnerContext context) {
            return new ModelRunner() {
                @Override
                public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
                    hooks.beforeLayer(0);
                    hooks.afterLayer(0);
                    for (int i = 0; i < batch.size(); i++) {
                        if (batch.item(i).sampled()) {
                            output.token(i, 1);
                        }
                    }
                }

                @Override
                public void close() {}
            };
        }

        @Override
        public void close() {}
    }

    private static final class Host implements WorkerHost {
        @Override
        public void configure(String hostConfig, EventSink events) {}

        @Override
        public HostServices services() {
            return HostServices.NONE;
        }

        @Override
        public ModelRunnerProvider runner(String name) {
            return new NullRunner();
        }

        @Override
        public KvConnectorProvider kvConnector(String name) {
            throw new UnsupportedOperationException(name);
        }

        @Override
        public EcConnectorProvider ecConnector(String name) {
            throw new UnsupportedOperationException(name);
        }
    }
}
