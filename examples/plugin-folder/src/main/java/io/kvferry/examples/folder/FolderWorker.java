// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.folder;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/// Moves the bytes of one rank, within the step.
///
/// Threading: the rank's step thread.
final class FolderWorker implements WorkerConnector {
    private final int rank;
    private final BlockFolder folder;
    private final List<Completion> completions = new ArrayList<>();
    private List<KvRegion> regions = List.of();
    private ByteBuffer staging = ByteBuffer.allocateDirect(0);
    private FolderPlan plan = new FolderPlan();
    private Stats stats = Stats.EMPTY;

    FolderWorker(WorkerContext context) {
        this.rank = context.rank().rank();
        this.folder =
                new BlockFolder(context.options().path("folder"), context.engine().namespace());
    }

    @Override
    public void registerRegions(List<KvRegion> all) {
        all.forEach(KvRegion::segment); // refuses what is not in host memory
        regions = List.copyOf(all);
        staging =
                ByteBuffer.allocateDirect(
                        Math.toIntExact(all.stream().mapToLong(KvRegion::blockBytes).sum()));
    }

    @Override
    public void beginStep(WorkerStep step) {
        plan = FolderPlan.decode(step.plan());
        for (var id : step.revoked()) { // loads never outlive their step, so nothing is in flight
            completions.add(new Completion(id, rank, new Completion.Revoked()));
        }
        for (var load : plan.loads()) {
            if (!step.revoked().contains(load.id())) {
                completions.add(new Completion(load.id(), rank, load(load, step.limit())));
            }
        }
    }

    /// Loads every block that can be loaded, and reports the others as failed.
    private Completion.Result load(FolderPlan.Job job, Deadline limit) {
        var missing = new ArrayList<Integer>();
        Optional<Failure> failure = Optional.empty();
        for (int i = 0; i < job.blocks().length; i++) {
            try {
                if (limit.passed()) {
                    throw new KvFerryException(
                            ErrorCode.TIMEOUT, "load " + job.id() + " took longer than its step");
                }
                folder.read(job.hashes().get(i), rank, staging.clear());
                scatter(job.blocks()[i]);
            } catch (KvFerryException e) {
                missing.add(job.first() + i);
                failure = Optional.of(failure.orElse(Failure.of(e)));
            }
        }
        count("folder_load_blocks", job.blocks().length - missing.size());
        if (failure.isEmpty()) {
            return new Completion.Completed((long) job.blocks().length * staging.capacity());
        }
        var positions = missing.stream().mapToInt(Integer::intValue).toArray();
        return new Completion.Failed(
                failure.get(), List.of(new Completion.FailedBlocks(0, positions)));
    }

    private void scatter(int block) {
        staging.clear();
        for (var region : regions) {
            var target = region.block(block).asByteBuffer();
            target.put(staging.slice(staging.position(), target.remaining()));
            staging.position(staging.position() + target.capacity());
        }
    }

    private void gather(int block) {
        staging.clear();
        for (var region : regions) {
            staging.put(region.block(block).asByteBuffer());
        }
        staging.flip();
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        for (var save : plan.saves()) {
            var request = save.id().subject();
            if (!notComputed.contains(request)) {
                for (int i = 0; i < save.blocks().length && !step.limit().passed(); i++) {
                    save(save.hashes().get(i), save.blocks()[i]);
                }
            }
        }
        plan = new FolderPlan();
    }

    /// Not an error: a block that cannot be saved is a miss later.
    private void save(BlockHash hash, int block) {
        gather(block);
        try {
            folder.write(hash, rank, staging);
            count("folder_save_blocks", 1);
        } catch (KvFerryException e) {
            count("folder_save_failures", 1);
        }
    }

    private void count(String name, long value) {
        stats = stats.merge(Stats.counter(name, value));
    }

    @Override
    public StepReport report(WorkerStep step) {
        var report =
                new StepReport(rank, step.number(), completions, Payload.EMPTY, stats, List.of());
        completions.clear();
        stats = Stats.EMPTY;
        return report;
    }

    @Override
    public void close() {
        regions = List.of(); // nothing runs outside of a step, and no file stays open
    }
}
