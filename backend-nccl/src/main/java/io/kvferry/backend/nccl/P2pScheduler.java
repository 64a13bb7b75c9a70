// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.P2pPlan.Peer;
import io.kvferry.backend.nccl.P2pSettings.SendType;
import io.kvferry.backend.nccl.vllm.VllmExchange;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockTable;
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
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The scheduler half. What a request wants stands in its `kv_transfer_params`, or in its id, in
/// the form of vLLM's proxy ([HandOver]).
///
/// A prompt is pushed in the step that computes its last token, if its decoder is known or has
/// asked for it before. Where that was not so, or did not succeed on every rank, its blocks are
/// held until the decoder has fetched them; with protocol 0 only where the decoder gets.
final class P2pScheduler implements SchedulerConnector {
    private final SchedulerContext context;
    private final P2pSettings settings;
    private final HandOver.Reader handOvers;
    private final Map<String, Tracked> requests = new HashMap<>();

    /// Requests whose prompt was pushed, by transfer.
    private final Map<String, Tracked> pushedTransfers = new HashMap<>();

    /// Of protocol 0; also those of the halves of this engine that were open before.
    private final KnownPrompts.OfEngine prompts;

    /// Of protocol 0, by transfer: the request that is under way.
    private final Map<String, String> holders = new HashMap<>();

    private final List<P2pPlan.Push> pushes = new ArrayList<>();
    private final List<P2pPlan.Hold> holds = new ArrayList<>();
    private final List<P2pPlan.Withdrawal> withdrawals = new ArrayList<>();
    private final List<P2pPlan.Load> loads = new ArrayList<>();
    private final List<P2pPlan.Release> releases = new ArrayList<>();
    private Peer self = new Peer(List.of(), PeerMessage.ANY_EPOCH);

    /// What is known of a request until it is finished.
    private static final class Tracked {
        private final HandOver handOver;
        private int localTokens;
        private boolean promised;
        private boolean received;
        private boolean pushed;
        private int ranksPushed;

        Tracked(HandOver handOver) {
            this.handOver = handOver;
        }
    }

    /// @param prompts what the halves before this one have handed over with protocol 0
    P2pScheduler(SchedulerContext context, KnownPrompts.OfEngine prompts) {
        this.context = context;
        this.prompts = prompts;
        this.settings = P2pSettings.from(context.options());
        this.handOvers = new HandOver.Reader(context, settings);
    }

    @Override
    public void onHandshakes(List<Payload> byRank) {
        var addresses = new ArrayList<String>();
        for (var payload : byRank) {
            addresses.add(P2pWorker.readHandshake(payload));
        }
        self = new Peer(addresses, context.engine().incarnation());
        handOvers.listeningAt(addresses);
    }

    @Override
    public void onRequest(RequestView request) {
        var tracked = new Tracked(withOnePrompt(handOvers.read(request), request));
        if (tracked.handOver instanceof HandOver.None(var trouble) && !trouble.isEmpty()) {
            tell(request, "this request is neither sent nor fetched", trouble);
        }
        requests.put(request.id(), tracked);
    }

    /// Messages of protocol 0 do not say which prompt a tensor belongs to. If a client reuses an
    /// id, the first prompt keeps it, and another prompt is neither sent nor fetched. Of equal
    /// prompts (`n` completions of one) the first request keeps it until it ends: two requests
    /// would put each layer twice.
    private HandOver withOnePrompt(HandOver handOver, RequestView request) {
        var transfer =
                switch (handOver) {
                    case HandOver.Send send -> send.transfer();
                    case HandOver.Receive receive -> receive.transfer();
                    case HandOver.None _ -> "";
                };
        if (!settings.vllm() || transfer.isEmpty()) {
            return handOver;
        }
        var key = VllmExchange.transfer(transfer);
        if (!prompts.claim(key, mark(request))) {
            return new HandOver.None("protocol 0: another prompt has this request id");
        }
        var holder = holders.putIfAbsent(key, request.id());
        return holder == null || holder.equals(request.id())
                ? handOver
                : new HandOver.None("protocol 0: another request has this request id");
    }

    private void tell(RequestView request, String what, String detail) {
        context.host()
                .events()
                .emit(
                        new TraceEvent.Incident(
                                request.id(), what, context.instance(), Map.of("detail", detail)));
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        var tracked = requests.get(request.id());
        if (tracked == null) {
            return LookupResult.MISS;
        }
        tracked.localTokens = localTokens;
        int tokens = request.promptTokenCount() - localTokens;
        if (!(tracked.handOver instanceof HandOver.Receive) || tracked.received || tokens < 1) {
            return LookupResult.MISS;
        }
        tracked.promised = true;
        return LookupResult.hit(tokens, LoadMode.ASYNC, context.instance(), Tier.PEER);
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        var tracked = requests.get(request.id());
        if (tracked == null
                || tracked.received
                || !(tracked.handOver instanceof HandOver.Receive receive)) {
            return;
        }
        if (!load.isEmpty()) {
            boolean tail = endsWithPrompt(request, load);
            if (!tail) {
                release(tracked, receive);
            }
            // Last: where this throws, the load is not planned.
            loads.add(
                    new P2pPlan.Load(
                            load.id(),
                            receive.transfer(),
                            tail ? receive.prefiller() : P2pPlan.Peer.NONE,
                            mark(request),
                            tails(blocks, load.fromToken(), load.toToken())));
            tracked.received = true;
        } else if (!tracked.promised) {
            // When another connector was preferred, this promise may still be used later; otherwise
            // `finish` releases it.
            release(tracked, receive);
        }
    }

    /// Whether the load ends with the prompt's last block in every group. Both sides count blocks
    /// from the end, so the wire cannot express a range in the middle, as a composite requests it
    /// to fill a gap left by another connector.
    private boolean endsWithPrompt(RequestView request, LoadAssignment load) {
        for (var group : context.engine().cache().groups()) {
            int tokens = group.blockTokens();
            if (Math.ceilDiv(load.toToken(), tokens)
                    != Math.ceilDiv(request.promptTokenCount(), tokens)) {
                return false;
            }
        }
        return true;
    }

    private void release(Tracked tracked, HandOver.Receive receive) {
        releases.add(new P2pPlan.Release(receive.transfer(), receive.prefiller()));
        tracked.received = true;
    }

    /// The blocks of tokens `from` to `to` in every group, or the last ones of them where some are
    /// not there: a sliding window has none before it.
    private List<int[]> tails(BlockTable blocks, int from, int to) {
        var tails = new ArrayList<int[]>();
        for (var group : context.engine().cache().groups()) {
            int start = from / group.blockTokens();
            int end = Math.ceilDiv(to, group.blockTokens());
            int first = end;
            while (first > start && blocks.block(group.index(), first - 1) != BlockTable.NO_BLOCK) {
                first--;
            }
            tails.add(blocks.copy(group.index(), first, end));
        }
        return tails;
    }

    @Override
    public Payload buildPlan(StepView step) {
        if (settings.sendType() != SendType.GET && context.config().role().produces()) {
            for (int i = 0; i < step.scheduledCount(); i++) {
                planPush(step.scheduled(i));
            }
        }
        var payload = new P2pPlan(pushes, holds, withdrawals, loads, releases).encode();
        pushes.clear(); // without memory: what is in the payload is not in the next
        holds.clear();
        withdrawals.clear();
        loads.clear();
        releases.clear();
        return payload;
    }

    private void planPush(StepView.ScheduledRequest scheduled) {
        var request = scheduled.request();
        var tracked = requests.get(request.id());
        if (tracked == null
                || tracked.pushed
                || !(tracked.handOver instanceof HandOver.Send send)) {
            return;
        }
        int prompt = request.promptTokenCount();
        int computed = scheduled.computedTokens();
        boolean last = computed < prompt && computed + scheduled.scheduledTokens() >= prompt;
        // Tokens that the engine did not have itself come from a load of this very step, which may
        // still fail on another rank.
        boolean restsOnLoad = scheduled.admitted() && computed > tracked.localTokens;
        if (last && !restsOnLoad && hasBlocks(scheduled.blocks(), prompt)) {
            tracked.pushed = true;
            tracked.ranksPushed = 0;
            pushedTransfers.put(send.transfer(), tracked);
            pushes.add(
                    new P2pPlan.Push(
                            request.id(),
                            send.transfer(),
                            send.decoder(),
                            mark(request),
                            tails(scheduled.blocks(), 0, prompt)));
        }
    }

    private static PromptMark mark(RequestView request) {
        return PromptMark.of(request.promptTokenCount(), request::token);
    }

    private boolean hasBlocks(BlockTable blocks, int tokens) {
        for (var group : context.engine().cache().groups()) {
            if (group.index() >= blocks.groups()
                    || blocks.count(group.index()) < Math.ceilDiv(tokens, group.blockTokens())) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void onReport(MergedReport report) {
        for (var rank : report.ranks()) {
            for (var transfer : StepPushes.readReport(rank.payload())) {
                var tracked = pushedTransfers.get(transfer);
                if (tracked != null) {
                    tracked.ranksPushed++;
                }
            }
        }
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        var tracked = requests.remove(request.id());
        if (tracked == null) {
            return FinishDecision.RELEASE;
        }
        return switch (tracked.handOver) {
            case HandOver.None _ -> FinishDecision.RELEASE;
            case HandOver.Receive receive -> {
                letGo(receive.transfer(), request);
                if (!tracked.received) {
                    release(tracked, receive); // the prefiller must not wait for us
                }
                yield FinishDecision.RELEASE;
            }
            case HandOver.Send send -> {
                letGo(send.transfer(), request);
                yield finishPrefill(request, tracked, send, blocks, reason);
            }
        };
    }

    private void letGo(String transfer, RequestView request) {
        if (settings.vllm()) {
            holders.remove(VllmExchange.transfer(transfer), request.id());
        }
    }

    private FinishDecision finishPrefill(
            RequestView request,
            Tracked tracked,
            HandOver.Send send,
            BlockTable blocks,
            FinishReason reason) {
        pushedTransfers.remove(send.transfer());
        boolean ended = reason == FinishReason.LENGTH || reason == FinishReason.STOP;
        if (!ended
                || request.computedTokenCount() < request.promptTokenCount()
                || !hasBlocks(blocks, request.promptTokenCount())) {
            withdrawals.add(
                    new P2pPlan.Withdrawal(
                            send.transfer(),
                            "the prefill ended without KV to hand over (" + reason + ")"));
            return FinishDecision.RELEASE;
        }
        if (settings.vllm() && settings.sendType() != SendType.GET) {
            if (tracked.ranksPushed < context.engine().worldSize()) {
                tell(
                        request,
                        "the KV was not put on every rank",
                        "a decoder of vLLM cannot ask for it; the log of this engine says why");
            }
            return FinishDecision.RELEASE;
        }
        var params = settings.vllm() ? TransferParams.EMPTY : handOvers.answer(send, self);
        if (tracked.ranksPushed == context.engine().worldSize()) {
            return new FinishDecision.Release(params);
        }
        var id = TransferId.save(request.id(), request.attempt());
        var hold = new FinishDecision.Hold(id, Deadline.in(settings.holdLimit()), params);
        // Last: the engine keeps no blocks where this throws, so nothing may be sent of them.
        holds.add(
                new P2pPlan.Hold(
                        id,
                        send.transfer(),
                        mark(request),
                        tails(blocks, 0, request.promptTokenCount())));
        return hold;
    }

    /// The address of one rank of a peer; empty where there is none.
    static Optional<PeerAddress> address(Peer peer, int rank) {
        if (peer.addresses().size() == 1) {
            return PeerAddress.parse(peer.addresses().getFirst())
                    .flatMap(address -> address.rank(rank));
        }
        return rank < peer.addresses().size()
                ? PeerAddress.parse(peer.addresses().get(rank))
                : Optional.empty();
    }

    @Override
    public Optional<Deadline> pendingWork() {
        boolean unsent =
                !holds.isEmpty()
                        || !withdrawals.isEmpty()
                        || !loads.isEmpty()
                        || !releases.isEmpty();
        return unsent ? Optional.of(Deadline.in(Duration.ZERO)) : Optional.empty();
    }

    @Override
    public void close() {
        requests.clear();
        holders.clear();
        pushedTransfers.clear();
    }
}
