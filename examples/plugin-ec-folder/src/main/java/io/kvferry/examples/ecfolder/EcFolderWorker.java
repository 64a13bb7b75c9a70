// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;

/// Moves the bytes of one rank, within the step: straight between the files and the slab in which
/// the engine keeps all items. A connector that moves them through a transfer backend would
/// register that slab, once, in `registerMemory`.
///
/// Threading: the rank's step thread.
final class EcFolderWorker implements EcWorkerConnector {
    private final int rank;
    private final boolean saves;
    private final ItemFolder folder;
    private final List<Completion> completions = new ArrayList<>();
    private Stats stats = Stats.EMPTY;

    EcFolderWorker(WorkerContext context) {
        this.rank = context.rank().rank();
        // Every rank has the same rows, so one of them saves.
        this.saves = context.config().role().produces() && rank == 0;
        this.folder =
                new ItemFolder(context.options().path("folder"), context.engine().namespace());
    }

    @Override
    public void beginStep(WorkerStep step, EncoderCache cache) {
        for (var id : step.revoked()) { // loads never outlive their step, so nothing is in flight
            completions.add(new Completion(id, rank, new Completion.Revoked()));
        }
        for (var load : EcFolderPlan.decode(step.plan()).loads()) {
            if (!step.revoked().contains(load.id())) {
                completions.add(new Completion(load.id(), rank, load(load, step, cache)));
            }
        }
    }

    private Completion.Result load(EcFolderPlan.Load load, WorkerStep step, EncoderCache cache) {
        var item = load.item();
        if (cache.get(item.hash()).isPresent()) {
            return new Completion.Completed(0);
        }
        if (step.limit().passed()) {
            return failed(
                    new KvFerryException(
                            ErrorCode.TIMEOUT, load.id() + " would take longer than its step"));
        }
        var room = cache.allocate(item);
        try {
            folder.read(item, room.data().asByteBuffer());
        } catch (KvFerryException e) {
            cache.discard(item.hash()); // a failed load leaves nothing in the cache
            return failed(e);
        }
        cache.publish(item.hash());
        count("ec_folder_load_bytes", room.bytes());
        return new Completion.Completed(room.bytes());
    }

    private static Completion.Result failed(KvFerryException why) {
        return new Completion.Failed(Failure.of(why), List.of());
    }

    /// Not an error: an item that cannot be saved is a miss later.
    @Override
    public void save(EcItem item, EncoderOutput output) {
        if (!saves) {
            return;
        }
        try {
            folder.write(item, output.data().asByteBuffer());
            count("ec_folder_save_bytes", output.bytes());
        } catch (KvFerryException e) {
            count("ec_folder_save_failures", 1);
        }
    }

    @Override
    public void endStep(WorkerStep step) {
        // Saves are over when save() returns.
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
        // Nothing runs outside of a step, and no file stays open.
    }
}
