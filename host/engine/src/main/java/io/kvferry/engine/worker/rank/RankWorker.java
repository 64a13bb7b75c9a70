// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.engine.worker.CloseStack;
import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerSetup;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.ProvidedMemory;

import org.jspecify.annotations.Nullable;

import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongFunction;

/// Everything of one rank: cache memory, runner, worker halves. Runs one step at a time.
///
/// Threading: opened, stepped and closed by one thread at a time.
public final class RankWorker implements AutoCloseable {
    private final WorkerSetup setup;
    private final int rank;
    private final int width;
    private final KvMemory memory;
    private final EncoderMemory encoderCache;
    private final ModelRunner runner;
    private final GuardedKvWorker kv;
    private final GuardedEcWorker ec;
    private final RankBatch batch;
    private final List<Integer> endTokens;
    private final Output output;
    private final RankResult result = new RankResult();
    private boolean closed;

    private RankWorker(
            WorkerSetup setup,
            int rank,
            Model model,
            KvMemory memory,
            EncoderMemory encoderCache,
            ModelRunner runner,
            GuardedKvWorker kv,
            GuardedEcWorker ec) {
        this.setup = setup;
        this.rank = rank;
        this.width = model.info().embeddingWidth();
        this.endTokens = model.info().eosTokens();
        this.output = new Output();
        this.memory = memory;
        this.runner = runner;
        this.kv = kv;
        this.ec = ec;
        this.encoderCache = encoderCache;
        this.batch = new RankBatch(encoderCache);
    }

    /// Opens the worker halves, allocates the cache, opens the runner, registers; closes what it
    /// opened when one of them fails.
    public static RankWorker open(WorkerSetup setup, Model model, int rank) {
        var last = new CloseStack();
        var first = new CloseStack();
        try {
            WorkerConnector kv = null;
            if (setup.kv().isPresent()) {
                kv = first.push(openKv(setup, rank));
            }
            EcWorkerConnector ec = null;
            if (setup.ec().isPresent()) {
                ec = first.push(openEc(setup, rank));
            }
            var memory =
                    last.push(
                            new KvMemory(
                                    setup.engine().cache(), provider(kv, setup.kvCapabilities())));
            var info = model.info();
            boolean encodes = ec != null || info.embeddingWidth() > 0;
            var encoderCache =
                    last.push(
                            new EncoderMemory(
                                    encodes ? setup.encoderRows() : 0,
                                    Math.max(1, info.embeddingWidth()),
                                    info.dtype(),
                                    provider(ec, setup.ecCapabilities())));
            var runner =
                    last.push(
                            model.openRunner(
                                    new RunnerContext(
                                            setup.rank(rank),
                                            setup.engine().cache(),
                                            memory.regions())));
            if (kv != null) {
                kv.registerRegions(memory.regions());
            }
            if (ec != null) {
                ec.registerMemory(encoderCache.range());
            }
            return new RankWorker(
                    setup,
                    rank,
                    model,
                    memory,
                    encoderCache,
                    runner,
                    new GuardedKvWorker(
                            kv, setup.kvCapabilities(), model.info().layers(), setup.host()::wake),
                    new GuardedEcWorker(ec, setup.ecCapabilities(), setup.host()::wake));
        } catch (RuntimeException | LinkageError e) {
            first.closeAfter(e); // their threads may touch the cache
            last.closeAfter(e);
            throw e;
        }
    }

    private static WorkerConnector openKv(WorkerSetup setup, int rank) {
        return setup.kv().orElseThrow().provider().openWorker(setup.kvContext(rank).orElseThrow());
    }

    private static EcWorkerConnector openEc(WorkerSetup setup, int rank) {
        return setup.ec().orElseThrow().provider().openWorker(setup.ecContext(rank).orElseThrow());
    }

    /// Opens the KV connector's half again, over the memory that there is. In a thread of its own.
    private WorkerConnector reopenKv(long incarnation) {
        var half = openKv(setup.withIncarnation(incarnation), rank);
        try {
            half.registerRegions(memory.regions());
            return half;
        } catch (Throwable e) { // closes in every case
            try (half) {
                throw e;
            }
        }
    }

    private EcWorkerConnector reopenEc(long incarnation) {
        var half = openEc(setup.withIncarnation(incarnation), rank);
        try {
            half.registerMemory(encoderCache.range());
            return half;
        } catch (Throwable e) { // closes in every case
            try (half) {
                throw e;
            }
        }
    }

    private static LongFunction<Optional<ProvidedMemory>> provider(
            @Nullable WorkerHalf half, ConnectorCapabilities claimed) {
        return half != null && claimed.has(Feature.PROVIDES_MEMORY)
                ? half::provideMemory
                : _ -> Optional.empty();
    }

    public Handshakes handshakes() {
        return new Handshakes(kv.handshake(), ec.handshake());
    }

    /// Runs a step. The result is valid until the next one.
    public RankResult step(StepPlan plan) {
        result.reset(plan.items().size(), rank, plan.number());
        plan.freedItems().forEach(encoderCache::drop);
        plan.placedItems().forEach(encoderCache::place);
        var kvStep =
                new WorkerStep(
                        plan.number(),
                        plan.kvPlan(),
                        plan.kvRevoked(),
                        plan.forward(),
                        plan.limit());
        var ecStep =
                new WorkerStep(
                        plan.number(),
                        plan.ecPlan(),
                        plan.ecRevoked(),
                        plan.forward(),
                        plan.limit());
        kv.change(plan.kvChange(), this::reopenKv);
        ec.change(plan.ecChange(), this::reopenEc);
        kv.begin(kvStep);
        ec.begin(ecStep, encoderCache);
        encode(plan);
        ec.end(ecStep, result);
        if (plan.forward()) {
            kv.completeLayers(forward(plan));
        }
        kv.end(result, notComputed(plan));
        kv.takeOpened().ifPresent(result::kvOpened);
        ec.takeOpened().ifPresent(result::ecOpened);
        result.unclosed(kv.isClosing(), ec.isClosing());
        return result;
    }

    private Set<String> notComputed(StepPlan plan) {
        if (result.isClean()) {
            return Set.of();
        }
        var ids = new HashSet<String>();
        for (int i = 0; i < plan.items().size(); i++) {
            if (result.failed(i) || result.skipped(i)) {
                ids.add(plan.items().get(i).requestId());
            }
        }
        return ids;
    }

    private void encode(StepPlan plan) {
        for (var task : plan.encodes()) {
            var hash = task.item().hash();
            if (encoderCache.get(hash).isPresent()) {
                continue;
            }
            try {
                if (width == 0) {
                    throw new KvFerryException(ErrorCode.UNSUPPORTED, "the model has no encoder");
                }
                var target = encoderCache.allocate(task.item());
                runner.encode(task.input(), target);
                encoderCache.publish(hash);
                ec.save(task.item(), target);
            } catch (Throwable e) { // the border to the runner
                encoderCache.drop(hash);
                result.encodeFailure(hash, Failure.of(e));
            }
        }
    }

    /// @return whether the runner got through all layers
    private boolean forward(StepPlan plan) {
        batch.reset(plan, result);
        output.plan = plan;
        try {
            runner.execute(batch, output, kv);
            requireTokens(plan);
            return true;
        } catch (Throwable e) { // the border to the runner
            var failure =
                    new Failure(
                            e instanceof KvFerryException coded ? coded.code() : ErrorCode.INTERNAL,
                            "the model runner failed in step "
                                    + plan.number()
                                    + " on rank "
                                    + rank
                                    + ": "
                                    + e);
            for (int i = 0; i < plan.items().size(); i++) {
                result.fail(i, failure);
            }
            return false;
        }
    }

    private void requireTokens(StepPlan plan) {
        if (rank != 0) {
            return;
        }
        for (int i = 0; i < batch.size(); i++) {
            int at = batch.planned(i);
            if (result.failed(at)) {
                continue;
            }
            var item = plan.items().get(at);
            if (item.sampled() && result.token(at) == RankResult.NO_TOKEN) {
                missing(at, "the model runner left no token for a sampled item");
            } else if (!result.hasPromptLogprobs(at, item.promptLogits())) {
                missing(at, "the model runner left out logits of prompt tokens");
            }
        }
    }

    private void missing(int item, String what) {
        result.fail(item, new Failure(ErrorCode.INTERNAL, what));
    }

    /// Worker halves first, since their threads may touch the cache; the memory last.
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        var halves = new CloseStack();
        halves.push(ec);
        halves.push(kv);
        halves.close();
        var rest = new CloseStack();
        if (kv.isUnclosed() || ec.isUnclosed()) {
            rest.push(runner); // freeing memory under a thread would crash the process
        } else {
            rest.push(memory);
            rest.push(encoderCache);
            rest.push(runner);
        }
        rest.close();
    }

    private final class Output implements StepOutput {
        private final Sampler sampler = new Sampler(endTokens);
        private @Nullable StepPlan plan;

        @Override
        public void logits(int item, float[] logits) {
            var now = plan;
            if (now == null) {
                throw new IllegalStateException("logits outside of execute");
            }
            int at = batch.planned(item);
            var planned = now.items().get(at);
            int token = sampler.pick(logits, planned);
            result.token(at, token);
            sampler.logprobs(logits, planned, token)
                    .ifPresent(values -> result.logprobs(at, values));
        }

        @Override
        public void promptLogits(int item, int token, float[] logits) {
            var now = plan;
            if (now == null) {
                throw new IllegalStateException("logits outside of execute");
            }
            int at = batch.planned(item);
            var planned = now.items().get(at);
            Objects.checkIndex(token, planned.promptLogits());
            result.promptLogprobs(
                    at,
                    planned.promptLogits(),
                    token,
                    sampler.promptLogprobs(logits, planned, token));
        }

        @Override
        public void token(int item, int token) {
            int at = batch.planned(item);
            var now = plan;
            if (now != null && !now.items().get(at).isPlain()) {
                result.fail(
                        at,
                        new Failure(
                                ErrorCode.UNSUPPORTED,
                                "the model runner chooses tokens itself: no top_k, min_p, penalties, logit_bias, min_tokens, logprobs and prompt_logprobs"));
                return;
            }
            result.token(at, token);
        }

        @Override
        public void failed(int item, Failure failure) {
            result.fail(batch.planned(item), failure);
        }
    }
}
