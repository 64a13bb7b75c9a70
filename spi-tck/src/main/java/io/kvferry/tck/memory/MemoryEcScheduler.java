// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// The scheduler half of the in-memory encoder-cache connector.
final class MemoryEcScheduler implements EcSchedulerConnector {
    static final int PLAN_VERSION = 1;

    private final SchedulerContext context;
    private final MemoryStore store;
    private final LoadMode mode;
    private final Map<TransferId, EcItem> plan = new LinkedHashMap<>();
    private final Set<String> failed = new HashSet<>();

    MemoryEcScheduler(SchedulerContext context) {
        this.context = context;
        store = MemoryConnectorProvider.store(context.config(), context.options());
        mode = context.options().string("load").equals("sync") ? LoadMode.SYNC : LoadMode.ASYNC;
    }

    @Override
    public LookupResult lookup(EcItem item) {
        boolean found =
                context.config().role().consumes()
                        && !failed.contains(item.hash())
                        && store.hasItem(context.namespace().hex(), MemoryEcProvider.key(item));
        return found
                ? LookupResult.hit(item.embeddings(), mode, context.instance(), Tier.HOST)
                : LookupResult.miss();
    }

    @Override
    public void onAllocated(EcItem item, Optional<TransferId> load) {
        load.ifPresentOrElse(id -> plan.put(id, item), () -> failed.remove(item.hash()));
    }

    @Override
    public Payload buildPlan(long step) {
        if (plan.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter().i32(plan.size());
        plan.forEach((id, item) -> {
            id.write(out);
            item.write(out.bool(mode == LoadMode.SYNC));
        });
        plan.clear();
        return out.toPayload(PLAN_VERSION);
    }

    @Override
    public MergedReport onReport(MergedReport report) {
        for (var completion : report.completions()) {
            if (completion.result() instanceof TransferResult.Failed) {
                failed.add(completion.id().subject()); // until the engine has encoded it itself
            }
        }
        return report;
    }

    @Override
    public void onRevoked(TransferId id) {
        plan.remove(id);
    }

    @Override
    public void close() {
        store.close();
    }
}
