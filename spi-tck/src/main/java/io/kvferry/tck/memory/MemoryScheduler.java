// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/// The scheduler half of the in-memory connector. It reads the index of the store, which is in this
/// JVM; a connector with a remote store would ask in the background and answer Pending meanwhile.
final class MemoryScheduler implements SchedulerConnector {
    private static final Duration ANNOUNCED_RETRY = Duration.ofMillis(2);

    /// What is known of a request until it is finished.
    private static final class Tracked {
        int savedBlocks;
        Optional<LoadAssignment> loading = Optional.empty();
        boolean loadFailed;
        boolean consumed;
    }

    private final SchedulerContext context;
    private final MemoryStore store;
    private final String namespace;
    private final int blockTokens;
    private final Duration leaseTime;
    private final String loadOption;
    private final String saveOption;
    private final String handOffOption;
    private final Map<String, Tracked> requests = new HashMap<>();
    private final MemoryLoans loans;

    /// Loads that planned saves rest on.
    private final Set<TransferId> awaited = new HashSet<>();

    private MemoryPlan plan = MemoryPlan.empty();
    private List<CacheEvent> events = new ArrayList<>();
    private Stats stats = Stats.EMPTY;
    private int sequence;

    MemoryScheduler(SchedulerContext context) {
        this.context = context;
        blockTokens = context.engine().cache().blockTokens();
        for (var group : context.engine().cache().groups()) {
            if (group.blockTokens() != blockTokens) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "MemoryConnector needs groups of one block size, got "
                                + blockTokens
                                + " and "
                                + group.blockTokens());
            }
        }
        store = MemoryConnectorProvider.store(context.config(), context.options());
        namespace = context.engine().namespace().hex();
        leaseTime = context.options().duration("lease");
        loans = new MemoryLoans(store, leaseTime);
        loadOption = context.options().string("load");
        saveOption = context.config().role().produces() ? context.options().string("save") : "none";
        handOffOption = context.options().string("hand_off");
    }

    @Override
    public void bindBlockPool(BlockPool pool) {
        loans.usePool(pool);
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
    public void onRequest(RequestView request) {
        requests.put(request.id(), new Tracked());
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        var tracked = requests.get(request.id());
        if (tracked == null
                || tracked.loadFailed
                || loadOption.equals("none")
                || !context.config().role().consumes()) {
            return LookupResult.MISS;
        }
        var handOff = usableHandOff(request);
        stats = stats.merge(Stats.counter("memory_lookups", 1));
        return handOff.isPresent() && !tracked.consumed
                ? lookupHandOff(request, localTokens, handOff.get())
                : lookupStore(request, localTokens);
    }

    private LookupResult lookupStore(RequestView request, int localTokens) {
        int first = localTokens / blockTokens;
        int most =
                Math.min(
                        request.blockHashCount(),
                        (request.tokenCount() - (isSync() ? 1 : 0)) / blockTokens);
        int next = first;
        while (next < most && store.contains(namespace, request.blockHash(next))) {
            next++;
        }
        return next == first ? LookupResult.MISS : hit((next - first) * blockTokens, Tier.HOST);
    }

    /// The request's usable hand-off. If a group does not keep all tokens (a window, a recurrent
    /// state), the producer holds only what belongs to its last token, so a load that must stop
    /// earlier cannot use it.
    private Optional<String> usableHandOff(RequestView request) {
        boolean movesOn =
                context.engine().cache().groups().stream()
                        .anyMatch(group -> !group.keepsAllTokens());
        return handOffKey(request.params())
                .filter(_ -> !movesOn || handedOver(request) == remoteTokens(request));
    }

    private static int remoteTokens(RequestView request) {
        return (int) request.params().integer("remote_tokens").orElse(0L).longValue();
    }

    /// Tokens that a load of the hand-off can bring.
    private int handedOver(RequestView request) {
        int most = Math.min(remoteTokens(request), request.tokenCount());
        return isSync()
                ? Math.min(most, request.tokenCount() - 1) / blockTokens * blockTokens
                : most;
    }

    private LookupResult lookupHandOff(RequestView request, int localTokens, String key) {
        int most = handedOver(request);
        boolean sameShape =
                request.params().string("remote_namespace").filter(namespace::equals).isPresent()
                        && request.params().integer("tp_size").orElse(0L)
                                == context.engine().worldSize();
        if (!sameShape || most <= localTokens) {
            return LookupResult.MISS;
        }
        int tokens = most - localTokens;
        return switch (store.offerState(key)) {
            case ABSENT -> LookupResult.MISS;
            case ANNOUNCED -> new LookupResult.Pending(ANNOUNCED_RETRY);
            case READY -> hit(tokens, Tier.PEER);
        };
    }

    private boolean isSync() {
        return !loadOption.equals("async");
    }

    private LookupResult hit(int tokens, Tier tier) {
        return LookupResult.hit(
                tokens, isSync() ? LoadMode.SYNC : LoadMode.ASYNC, context.instance(), tier);
    }

    private static Optional<String> handOffKey(TransferParams params) {
        return params.flag("do_remote_prefill")
                ? params.string("remote_hand_off")
                : Optional.empty();
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        if (load.isEmpty()) {
            return;
        }
        var tracked =
                Objects.requireNonNull(requests.get(request.id()), "a request that never entered");
        tracked.loading = Optional.of(load);
        var key = usableHandOff(request).filter(_ -> !tracked.consumed).orElse("");
        tracked.consumed = tracked.consumed || !key.isEmpty();
        int first = load.fromToken() / blockTokens;
        int last = Math.ceilDiv(load.toToken(), blockTokens);
        var hashes = key.isEmpty() ? hashes(request, first, last) : List.<BlockHash>of();
        plan.loads()
                .add(
                        new MemoryPlan.Load(
                                load.id(), load.mode(), key, blocks(blocks, first, last, hashes)));
    }

    private static List<BlockHash> hashes(RequestView request, int first, int last) {
        var hashes = new ArrayList<BlockHash>(last - first);
        for (int i = first; i < last; i++) {
            hashes.add(request.blockHash(i));
        }
        return hashes;
    }

    private MemoryPlan.Blocks blocks(
            BlockTable table, int first, int last, List<BlockHash> hashes) {
        var ids = new int[table.groups()][];
        for (int group = 0; group < ids.length; group++) {
            ids[group] = table.copy(group, first, last);
        }
        return new MemoryPlan.Blocks(first, hashes, ids);
    }

    @Override
    public Payload buildPlan(StepView step) {
        for (var id : step.preempted()) {
            Optional.ofNullable(requests.get(id)).ifPresent(tracked -> tracked.savedBlocks = 0);
        }
        if (!saveOption.equals("none")) {
            for (int i = 0; i < step.scheduledCount(); i++) {
                planSaves(step.scheduled(i));
            }
        }
        long renewed = loans.renewWanted();
        if (renewed > 0) {
            stats = stats.merge(Stats.counter("memory_leases_renewed", renewed));
        }
        var encoded = plan.encode();
        plan = MemoryPlan.empty();
        return encoded;
    }

    /// Saves what will be full after this step and is not stored yet.
    private void planSaves(StepView.ScheduledRequest scheduled) {
        var request = scheduled.request();
        var tracked = requests.get(request.id());
        if (tracked == null) {
            return;
        }
        // A load may yet fail on some rank: what rests on it is published when it is complete.
        var after = tracked.loading.map(LoadAssignment::id);
        int full =
                Math.min(
                        (scheduled.computedTokens() + scheduled.scheduledTokens()) / blockTokens,
                        request.blockHashCount());
        for (int from = tracked.savedBlocks; from < full; ) {
            if (store.contains(namespace, request.blockHash(from))) {
                from++;
                continue;
            }
            int to = from + 1;
            while (to < full && !store.contains(namespace, request.blockHash(to))) {
                to++;
            }
            addSave(request, scheduled.blocks(), from, to, after);
            after.ifPresent(awaited::add);
            from = to;
        }
        tracked.savedBlocks = Math.max(tracked.savedBlocks, full);
    }

    private void addSave(
            RequestView request, BlockTable table, int from, int to, Optional<TransferId> after) {
        var blocks = blocks(table, from, to, hashes(request, from, to));
        if (!saveOption.equals("lease")) {
            plan.saves().add(new MemoryPlan.Save(request.id(), Optional.empty(), after, blocks));
            return;
        }
        var id =
                new TransferId(
                        request.id(), request.attempt(), TransferId.Direction.SAVE, ++sequence, "");
        loans.lend(id, blocks, "");
        plan.saves().add(new MemoryPlan.Save(request.id(), Optional.of(id), after, blocks));
    }

    @Override
    public void onReport(MergedReport report) {
        for (var completion : report.completions()) {
            var id = completion.id();
            if (id.direction() == TransferId.Direction.SAVE) {
                loans.end(id);
            } else {
                endLoad(id, completion.result());
            }
        }
    }

    private void endLoad(TransferId id, Completion.Result result) {
        if (awaited.remove(id)) {
            boolean completed = result instanceof Completion.Completed;
            plan.verdicts().add(new MemoryPlan.Verdict(id, completed));
        }
        var tracked = requests.get(id.subject());
        if (tracked == null || tracked.loading.filter(load -> load.id().equals(id)).isEmpty()) {
            return;
        }
        if (result instanceof Completion.Failed) {
            tracked.loadFailed = true;
            tracked.savedBlocks = 0; // what was to be saved behind it was not
        }
        tracked.loading = Optional.empty();
    }

    @Override
    public void onRevoked(TransferId id) {
        plan.loads().removeIf(load -> load.id().equals(id));
        plan.saves().removeIf(save -> save.id().filter(id::equals).isPresent());
        plan.offers().removeIf(offer -> offer.id().equals(id));
        loans.onRevoked(id);
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        var tracked = requests.remove(request.id());
        if (tracked != null && !tracked.consumed) {
            handOffKey(request.params()).ifPresent(store::abandon); // let the producer's blocks go
        }
        boolean ended = reason == FinishReason.LENGTH || reason == FinishReason.STOP;
        if (handOffOption.equals("none")
                || !ended
                || !request.params().flag("do_remote_decode")
                || request.computedTokenCount() == 0
                || blocks.groups() == 0) {
            return FinishDecision.RELEASE;
        }
        return handOff(request, blocks);
    }

    private FinishDecision handOff(RequestView request, BlockTable table) {
        var key =
                context.config().engineId()
                        + "/"
                        + Long.toHexString(context.engine().incarnation())
                        + "/"
                        + request.id();
        var id =
                new TransferId(
                        request.id(), request.attempt(), TransferId.Direction.SAVE, ++sequence, "");
        int tokens = request.computedTokenCount();
        var blocks = blocks(table, 0, Math.ceilDiv(tokens, blockTokens), List.of());
        store.announce(key, context.engine().worldSize());
        plan.offers().add(new MemoryPlan.Offer(id, key, blocks));
        var params =
                new TransferParams(
                        Map.of(
                                "do_remote_prefill",
                                true,
                                "do_remote_decode",
                                false,
                                "remote_engine_id",
                                context.config().engineId(),
                                "remote_request_id",
                                request.id(),
                                "remote_hand_off",
                                key,
                                "remote_namespace",
                                namespace,
                                "remote_tokens",
                                tokens,
                                "tp_size",
                                context.engine().worldSize()));
        if (handOffOption.equals("lease")) {
            loans.lend(id, blocks, key);
            return new FinishDecision.Release(params);
        }
        loans.hold(id, key);
        return new FinishDecision.Hold(id, Deadline.in(leaseTime), params);
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        store.clear(namespace);
        events.add(new CacheEvent.Cleared(context.instance()));
        return CompletableFuture.completedStage(true);
    }

    /// A verdict must not wait for the next request.
    @Override
    public Optional<Deadline> pendingWork() {
        return plan.verdicts().isEmpty()
                ? Optional.empty()
                : Optional.of(Deadline.in(Duration.ZERO));
    }

    @Override
    public Stats drainStats() {
        var drained = stats;
        stats = Stats.EMPTY;
        return drained;
    }

    @Override
    public List<CacheEvent> drainEvents() {
        var drained = events;
        events = new ArrayList<>();
        return drained;
    }

    @Override
    public void close() {
        loans.close();
        requests.clear();
        store.close();
    }
}
