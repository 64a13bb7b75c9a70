// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.core.EngineCore;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// An inference engine with block pool, prefix cache, connectors and worker ranks.
///
/// Life cycle: [#open] -> [#start] (or [#step] by hand, in tests) -> [#submit] ... -> [#close].
///
/// Threading: [#submit], [#stats] and the handles from any thread. One scheduler thread, started by
/// [#start], owns everything else; without [#start] the thread that calls [#step] is the scheduler
/// thread.
public final class Engine implements AutoCloseable {
    private static final int WARM_UP_TOKENS = 8;

    /// Enough for the JDK's SHA-256 to be compiled for good: its last compiler begins after some
    /// 5,000 calls.
    private static final int WARM_UP_PROMPTS = 8;

    private static final int WARM_UP_BLOCKS = 1024;

    private final Model model;
    private final KvCacheSpec cache;
    private final CacheNamespace namespace;
    final EngineCore core;
    private final ReentrantLock closing = new ReentrantLock();
    private @Nullable Thread thread;
    private boolean closed;

    Engine(Model model, KvCacheSpec cache, CacheNamespace namespace, EngineCore core) {
        this.model = model;
        this.cache = cache;
        this.namespace = namespace;
        this.core = core;
    }

    /// Opens model, connector halves and workers.
    ///
    /// @throws KvFerryException when a setting is wrong or a part cannot be opened; nothing is left
    ///   open then
    public static Engine open(EngineConfig config) {
        return EngineOpener.open(config);
    }

    public ModelInfo model() {
        return model.info();
    }

    public Tokenizer tokenizer() {
        return model.tokenizer();
    }

    /// Name of the KV connector, empty without one.
    public String kvConnector() {
        return core.kvConnector();
    }

    /// Name of the encoder-cache connector, empty without one.
    public String ecConnector() {
        return core.ecConnector();
    }

    /// The shape of the KV cache on each rank.
    public KvCacheSpec cache() {
        return cache;
    }

    /// The root of this engine's block hashes.
    public CacheNamespace namespace() {
        return namespace;
    }

    /// Starts the scheduler thread.
    public Engine start() {
        if (thread != null) {
            throw new IllegalStateException("started already");
        }
        thread = Thread.ofPlatform().name("kvferry-scheduler").daemon().start(core::loop);
        return this;
    }

    /// Queues a request. Any thread; does not block.
    ///
    /// @throws KvFerryException INVALID_REQUEST when it can never run (longer than the context or
    ///   the pool), BACKPRESSURE when the engine is full, CLOSED after [#close], UNAVAILABLE when
    ///   the engine has lost its workers for good
    public RequestHandle submit(GenerationRequest request) {
        return core.submit(request);
    }

    /// Warms the engine up. Generates two tokens after a prompt of its own, so that a client's
    /// first request does not wait for class loading in scheduler, ranks and runner. The prompt is
    /// shorter than a block, and nothing of it is cached, saved or handed over; [#stats] counts it.
    /// Before that, hashes the blocks of long prompts on the calling thread, for some tens of
    /// milliseconds. Call it after [#start].
    ///
    /// @return whether it ended before the deadline; false also if blocks are too short, and for an
    ///   engine that only encodes
    public boolean warmUp(Deadline limit) {
        int tokens = Math.min(WARM_UP_TOKENS, cache.groups().getFirst().blockTokens() - 2);
        if (tokens < 1) {
            return false;
        }
        var prompt = new int[tokens];
        Arrays.fill(prompt, 1);
        var sampling = SamplingParams.greedy(2).withIgnoreEos(true);
        hashBlocks();
        try {
            var request = submit(GenerationRequest.of(prompt, sampling));
            var outcome = request.await(limit);
            if (outcome.isEmpty()) {
                request.abort();
            }
            return outcome.orElse(null) instanceof Outcome.Finished;
        } catch (KvFerryException e) {
            return false; // a client's request fails with the same reason
        }
    }

    private void hashBlocks() {
        var hasher = BlockHasher.of(namespace);
        var tokens = new int[WARM_UP_BLOCKS * namespace.blockTokens()];
        for (int prompt = 0; prompt < WARM_UP_PROMPTS; prompt++) {
            var chain = new HashChain(hasher.root(""), WARM_UP_BLOCKS);
            hasher.extend(chain, tokens, WARM_UP_BLOCKS, BlockHasher.Extra.NONE);
        }
    }

    /// Runs one step on the calling thread; only without [#start].
    ///
    /// @return whether to run another step immediately; false when the engine is idle or everything
    ///   waits
    public boolean step() {
        if (thread != null) {
            throw new IllegalStateException("the scheduler thread steps");
        }
        return core.step();
    }

    public EngineStats stats() {
        return core.stats();
    }

    /// Forwards the cache events of the engine and its connectors, in order. Called on the
    /// scheduler thread; must not block. Set before [#start].
    public void onCacheEvent(Consumer<CacheEvent> listener) {
        core.listen(listener);
    }

    /// Sets the listener for the progress of requests. Before [#start].
    public void onProgress(RequestListener listener) {
        core.listen(listener);
    }

    /// As [#resetCaches(Deadline, boolean)], with the connectors' stores.
    public boolean resetCaches(Deadline limit) {
        return resetCaches(limit, true);
    }

    /// Drops all cached blocks and encoder items. Without `external` what requests use or load
    /// meanwhile stays theirs, and is not cached for others afterwards; with it they start over.
    ///
    /// Without [#start] this is called on the thread that steps, and steps while a connector still
    /// saves.
    ///
    /// @param external drop what the connectors keep as well, where they can be reset
    /// @return false when a connector could not remove something, or nothing was done before the
    ///   deadline
    public boolean resetCaches(Deadline limit, boolean external) {
        var emptied =
                thread == null
                        ? core.resetCaches(limit, external).toCompletableFuture()
                        : core.postReset(limit, external);
        if (thread == null) {
            core.stepUntil(emptied::isDone, limit);
        }
        try {
            return emptied.get(Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            return false;
        } catch (ExecutionException e) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "resetting the caches failed: " + e.getCause(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /// Throws [IllegalStateException] when the block pool's books do not balance. Linear in blocks;
    /// for tests that step the engine themselves.
    public void checkInvariants() {
        core.checkInvariants();
    }

    /// Describes requests, transfers and the encoder cache in lines of text, to diagnose what a
    /// stalled engine waits for. Without [#start], call it on the thread that steps.
    public String describe() {
        return core.describe();
    }

    /// Refuses new requests, lets running ones and open transfers end for
    /// [EngineConfig#closeLimit], aborts the rest and revokes what connectors still hold, then
    /// closes worker halves, runners, cache memory, scheduler halves and the model. Idempotent.
    @Override
    public void close() {
        closing.lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
            core.stop();
            join();
            try {
                core.close();
            } finally {
                model.close();
            }
        } finally {
            closing.unlock();
        }
    }

    /// The scheduler thread ends after its current step, which has a limit of its own.
    private void join() {
        var running = thread;
        if (running == null) {
            return;
        }
        boolean interrupted = false;
        while (running.isAlive()) {
            try {
                running.join();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
