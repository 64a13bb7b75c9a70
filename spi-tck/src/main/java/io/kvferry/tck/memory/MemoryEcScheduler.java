// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/// The scheduler half of the in-memory encoder-cache connector.
final class MemoryEcScheduler implements EcSchedulerConnector {
    private final SchedulerContext context;
    private final MemoryStore store;
    private final LoadMode mode;
    private final boolean holding;
    private final Map<TransferId, EcItem> loads = new LinkedHashMap<>();
    private final Map<TransferId, List<String>> holds = new LinkedHashMap<>();
    private final Map<String, List<String>> encoded = new HashMap<>();
    private final Set<String> failed = new HashSet<>();
    private List<CacheEvent> events = new ArrayList<>();

    MemoryEcScheduler(SchedulerContext context) {
        this.context = context;
        store = MemoryConnectorProvider.store(context.config(), context.options());
        mode = context.options().string("load").equals("sync") ? LoadMode.SYNC : LoadMode.ASYNC;
        holding =
                context.options().string("hand_off").equals("hold")
                        && context.config().role().produces();
    }

    @Override
    public void onHandshakes(List<Payload> byRank) {
        for (int rank = 0; rank < byRank.size(); rank++) {
            int said = byRank.get(rank).reader().i32();
            if (said != rank) {
                throw new KvFerryException(
                        ErrorCode.INTERNAL, "handshake of rank " + said + " came as rank " + rank);
            }
        }
    }

    @Override
    public LookupResult lookup(EcItem item) {
        boolean found =
                context.config().role().consumes()
                        && !failed.contains(item.hash())
                        && store.hasItem(
                                context.engine().namespace().hex(), MemoryEcProvider.key(item));
        return found
                ? LookupResult.hit(item.embeddings(), mode, context.instance(), Tier.HOST)
                : LookupResult.MISS;
    }

    @Override
    public void onAllocated(EcItem item, Optional<TransferId> load) {
        if (load.isPresent()) {
            loads.put(load.get(), item);
            return;
        }
        failed.remove(item.hash());
        if (holding) {
            encoded.computeIfAbsent(item.requestId(), _ -> new ArrayList<>())
                    .add(MemoryEcProvider.key(item));
        }
    }

    @Override
    public Payload buildPlan(long step) {
        var plan = new MemoryEcPlan(new ArrayList<>(), new ArrayList<>());
        loads.forEach((id, item) ->
                plan.loads().add(new MemoryEcPlan.Load(id, mode == LoadMode.SYNC, item)));
        holds.forEach((id, keys) -> plan.holds().add(new MemoryEcPlan.Hold(id, keys)));
        loads.clear();
        holds.clear();
        return plan.encode();
    }

    @Override
    public void onReport(MergedReport report) {
        for (var completion : report.completions()) {
            if (completion.result() instanceof Completion.Failed) {
                failed.add(completion.id().subject()); // until the engine has encoded it itself
            }
        }
    }

    @Override
    public void onRevoked(TransferId id) {
        loads.remove(id);
        holds.remove(id);
    }

    @Override
    public FinishDecision finish(String requestId, FinishReason reason) {
        var keys = encoded.remove(requestId);
        boolean ended = reason == FinishReason.LENGTH || reason == FinishReason.STOP;
        if (keys == null || !ended) {
            return FinishDecision.RELEASE;
        }
        var id = TransferId.save(requestId, 0);
        holds.put(id, keys);
        return new FinishDecision.Hold(
                id, Deadline.in(context.options().duration("lease")), TransferParams.EMPTY);
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        store.clearItems(context.engine().namespace().hex());
        events.add(new CacheEvent.Cleared(context.instance()));
        return CompletableFuture.completedStage(true);
    }

    @Override
    public List<CacheEvent> drainEvents() {
        var drained = events;
        events = new ArrayList<>();
        return drained;
    }

    @Override
    public void close() {
        store.close();
    }
}
