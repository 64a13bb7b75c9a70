// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import com.github.tjake.jlama.model.AbstractModel;
import com.github.tjake.jlama.model.ModelSupport;
import com.github.tjake.jlama.safetensors.DType;
import com.github.tjake.jlama.util.PhysicalCoreExecutor;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvLayout;

import org.jspecify.annotations.Nullable;

import java.io.File;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/// An opened folder; Jlama loads the weights when the first runner needs them.
///
/// Threading: safe. A Jlama model is not: all runners of one model take turns on [#lock].
final class JlamaModel implements Model {
    private final JlamaFolder folder;
    private final ModelInfo info;
    private final Tokenizer tokenizer;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable AbstractModel loaded;

    JlamaModel(JlamaFolder folder, Tokenizer tokenizer) {
        this.folder = folder;
        this.info = folder.info();
        this.tokenizer = tokenizer;
    }

    @Override
    public ModelInfo info() {
        return info;
    }

    @Override
    public Set<KvLayout> layouts() {
        return Set.of(KvLayout.LBNHC, KvLayout.LBHNC);
    }

    @Override
    public boolean scoresPrompts() {
        return true;
    }

    @Override
    public Tokenizer tokenizer() {
        return tokenizer;
    }

    @Override
    public ModelRunner openRunner(RunnerContext context) {
        if (context.rank().worldSize() != 1) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "the jlama runner computes on one rank, not "
                            + context.rank().worldSize()
                            + "; the synthetic runner has several");
        }
        lock.lock();
        try {
            @Nullable AbstractModel model = loaded;
            if (model == null) {
                Threads.pin();
                File path = folder.path().toFile();
                // The working directory is only written by Jlama's own persistent buffers, which
                // are not used here.
                model =
                        ModelSupport.loadModel(
                                path,
                                path,
                                DType.F32,
                                DType.F32,
                                Optional.empty(),
                                Optional.empty());
                loaded = model;
            }
            return new JlamaRunner(model, lock, folder, context);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        lock.lock();
        try {
            if (loaded != null) {
                loaded.close();
                loaded = null;
            }
        } finally {
            lock.unlock();
        }
    }

    /// Jlama splits each matrix by its thread count and drops the columns that are left over, and
    /// it takes the count from the machine; two divides every size that [JlamaFolder] lets through.
    private static final class Threads {
        private static final int WANTED = Math.min(2, Runtime.getRuntime().availableProcessors());

        /// Why it could not be set; empty when it was. Set once per process, by this class's
        /// initialisation.
        private static final Optional<String> OBSTACLE = set();

        static void pin() {
            if (OBSTACLE.isPresent()) {
                throw new KvFerryException(ErrorCode.UNAVAILABLE, OBSTACLE.get());
            }
        }

        private static Optional<String> set() {
            try {
                PhysicalCoreExecutor.overrideThreadCount(WANTED);
                return Optional.empty();
            } catch (IllegalStateException _) {
                int actual = PhysicalCoreExecutor.instance.get().getCoreCount();
                return actual <= 2
                        ? Optional.empty()
                        : Optional.of(
                                "Jlama was already started in this process with "
                                        + actual
                                        + " threads, with which it may compute wrongly; start kvferry's engine first");
            }
        }
    }
}
