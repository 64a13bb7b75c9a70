// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/// Decides what is loaded. Searching for files is I/O and runs on its own thread; meanwhile the
/// engine is told to ask again. After a failed load the item is not promised again, and the engine
/// encodes it itself.
///
/// Threading: the engine's scheduler thread; searches touch only what is passed to them.
final class EcFolderScheduler implements EcSchedulerConnector {
    private static final LookupResult ASK_AGAIN = new LookupResult.Pending(Duration.ofMillis(1));

    private final SchedulerContext context;
    private final ItemFolder folder;
    private final ExecutorService searchers = Executors.newVirtualThreadPerTaskExecutor();
    private final Map<EcItem, CompletableFuture<Boolean>> searches = new HashMap<>();
    private List<EcFolderPlan.Load> loads = new ArrayList<>();

    EcFolderScheduler(SchedulerContext context) {
        this.context = context;
        this.folder =
                new ItemFolder(context.options().path("folder"), context.engine().namespace());
    }

    @Override
    public LookupResult lookup(EcItem item) {
        if (!context.config().role().consumes()) {
            return LookupResult.MISS;
        }
        var search =
                searches.computeIfAbsent(
                        item,
                        _ -> CompletableFuture.supplyAsync(() -> folder.contains(item), searchers));
        if (!search.isDone()) {
            return ASK_AGAIN;
        }
        searches.remove(item); // the next lookup looks again: the answer holds now, not later
        return search.join()
                ? LookupResult.hit(item.embeddings(), LoadMode.SYNC, context.instance(), Tier.DISK)
                : LookupResult.MISS;
    }

    @Override
    public void onAllocated(EcItem item, Optional<TransferId> load) {
        load.ifPresent(id -> loads.add(new EcFolderPlan.Load(id, item)));
        searches.remove(item); // also if another connector was asked meanwhile
    }

    @Override
    public Payload buildPlan(long step) {
        var encoded = new EcFolderPlan(loads).encode();
        loads = new ArrayList<>();
        return encoded;
    }

    @Override
    public void onRevoked(TransferId id) {
        loads.removeIf(load -> load.id().equals(id));
    }

    @Override
    public FinishDecision finish(String requestId, FinishReason reason) {
        searches.keySet().removeIf(item -> item.requestId().equals(requestId));
        return FinishDecision.RELEASE; // saves are over when their step is: nothing to hold
    }

    @Override
    public void close() {
        searchers.close();
    }
}
