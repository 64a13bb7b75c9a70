// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// The scheduler half. What a request wants stands in its `kv_transfer_params`, with vLLM's keys:
/// `do_remote_decode` and `transfer_id` on the prefiller; `do_remote_prefill`, `transfer_id`,
/// `remote_engine_id` and `remote_bootstrap_addr` on the decoder. Each request is pulled once; what
/// fails is computed or fails by policy.
///
/// Beyond vLLM's: params that lack something mean a miss instead of a wait without end, an end
/// token on the first step still hands the prompt over, and the prefiller answers with complete
/// params for routers that work in sequence.
final class MooncakeScheduler implements SchedulerConnector {
    /// The meaning of the KV, in the params that a kvferry prefiller answers with.
    private static final String NAMESPACE_KEY = "kvferry_namespace";

    private final SchedulerContext context;
    private final MooncakeSettings settings;
    private final boolean recurrent;
    private final String namespace;
    private final Map<String, Tracked> requests = new HashMap<>();
    private List<String> expects = new ArrayList<>();
    private List<MooncakePlan.Send> sends = new ArrayList<>();
    private List<MooncakePlan.Withdrawal> withdrawals = new ArrayList<>();
    private List<MooncakePlan.Pull> pulls = new ArrayList<>();
    private String bootstrap = "";

    /// The state of a request until it is finished.
    private static final class Tracked {
        private final Optional<Source> source;
        private final String transferId;
        private boolean promised;
        private boolean pulled;
        private boolean expected;

        Tracked(Optional<Source> source, String transferId) {
            this.source = source;
            this.transferId = transferId;
        }

        boolean sends() {
            return !transferId.isEmpty();
        }
    }

    /// The place where a decoder's request finds its KV.
    private record Source(String transferId, String engineId, String bootstrap) {}

    MooncakeScheduler(SchedulerContext context) {
        this.context = context;
        this.settings = MooncakeSettings.from(context.options());
        this.namespace = HexFormat.of().formatHex(context.engine().namespace().contentDigest());
        this.recurrent =
                context.engine().cache().groups().stream()
                        .anyMatch(group -> group.kind() == KvCacheGroup.Kind.RECURRENT_STATE);
    }

    @Override
    public void onHandshakes(List<Payload> byRank) {
        for (var payload : byRank) {
            if (!payload.isEmpty()) {
                bootstrap = payload.reader().string();
                return;
            }
        }
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), read(request));
    }

    private Tracked read(RequestView request) {
        var params = request.params();
        var role = context.config().role();
        boolean fetches = params.flag("do_remote_prefill");
        boolean sends = params.flag("do_remote_decode");
        if ((fetches && !role.consumes())
                || (sends && !role.produces())
                || (fetches && recurrent)) {
            incident(
                    request,
                    "kv_transfer_params do not fit this engine",
                    recurrent ? "recurrent state" : "role " + role);
            return new Tracked(Optional.empty(), "");
        }
        var source = fetches ? source(request) : Optional.<Source>empty();
        var transferId =
                sends
                        ? params.string("transfer_id").orElseGet(() -> "xfer-" + UUID.randomUUID())
                        : "";
        return new Tracked(source, transferId);
    }

    private Optional<Source> source(RequestView request) {
        var params = request.params();
        var transferId = params.string("transfer_id");
        var engineId = params.string("remote_engine_id");
        var address = params.string("remote_bootstrap_addr");
        if (transferId.isEmpty() || engineId.isEmpty() || address.isEmpty()) {
            incident(
                    request,
                    "kv_transfer_params are incomplete, the prompt is computed here",
                    "do_remote_prefill needs transfer_id, remote_engine_id and remote_bootstrap_addr, got "
                            + params.values().keySet());
            return Optional.empty();
        }
        if (!params.string(NAMESPACE_KEY).orElse(namespace).equals(namespace)) {
            incident(
                    request,
                    "the prefiller computes other KV",
                    "model, runner, dtype or block size differ");
            return Optional.empty();
        }
        return Optional.of(new Source(transferId.get(), engineId.get(), address.get()));
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        var tracked = requests.get(request.id());
        int tokens = request.promptTokenCount() - localTokens;
        if (tracked == null || tracked.source.isEmpty() || tracked.pulled || tokens < 1) {
            return LookupResult.MISS;
        }
        tracked.promised = true;
        return LookupResult.hit(tokens, LoadMode.ASYNC, context.instance(), Tier.PEER);
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        var tracked = requests.get(request.id());
        if (tracked == null) {
            return;
        }
        if (tracked.sends() && !tracked.expected) {
            tracked.expected = true;
            expects.add(tracked.transferId);
        }
        // When another connector was preferred, this promise may still be used later; otherwise
        // `finish` releases the prefiller.
        if (tracked.source.isPresent()
                && !tracked.pulled
                && !(load.isEmpty() && tracked.promised)) {
            tracked.pulled = true;
            var source = tracked.source.get();
            boolean tail = endsWithPrompt(request, load);
            if (!load.isEmpty()) {
                pulls.add(pull(request, source, blocks, load, tail));
            }
            if (load.isEmpty() || !tail) {
                pulls.add(release(request, source)); // the prefiller must not wait for us
            }
        }
    }

    /// Whether the load ends with the prompt's last block in every group. The wire has no way to
    /// ask for a piece in the middle, as a composite requests it to fill a gap that another
    /// connector left.
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

    private MooncakePlan.Pull pull(
            RequestView request,
            Source source,
            BlockTable blocks,
            LoadAssignment load,
            boolean tail) {
        var groups = new ArrayList<int[]>();
        long bytes = 0;
        for (var group : context.engine().cache().groups()) {
            int first = load.fromToken() / group.blockTokens();
            int end = Math.ceilDiv(load.toToken(), group.blockTokens());
            int[] ids = tail(blocks, group.index(), first, end);
            groups.add(ids);
            bytes += ids.length * group.blockBytes() * group.layers().size();
        }
        // Without an address the worker reports the failure.
        var address = tail ? source.bootstrap() : "(none: only the end of a prompt can be fetched)";
        return new MooncakePlan.Pull(
                load.id(),
                request.id(),
                source.transferId(),
                source.engineId(),
                address,
                groups,
                bytes);
    }

    /// The blocks up to `end` that are there: a sliding window has none before it.
    private static int[] tail(BlockTable blocks, int group, int from, int end) {
        int first = end;
        while (first > from && blocks.block(group, first - 1) != BlockTable.NO_BLOCK) {
            first--;
        }
        return blocks.copy(group, first, end);
    }

    private MooncakePlan.Pull release(RequestView request, Source source) {
        return new MooncakePlan.Pull(
                TransferId.load(request.id(), request.attempt()),
                request.id(),
                source.transferId(),
                source.engineId(),
                source.bootstrap(),
                List.of(),
                0);
    }

    @Override
    public Payload buildPlan(StepView step) {
        var payload = new MooncakePlan(expects, sends, withdrawals, pulls).encode();
        expects = new ArrayList<>();
        sends = new ArrayList<>();
        withdrawals = new ArrayList<>();
        pulls = new ArrayList<>();
        return payload;
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        var tracked = requests.remove(request.id());
        if (tracked == null) {
            return FinishDecision.RELEASE;
        }
        if (tracked.source.isPresent() && !tracked.pulled) {
            pulls.add(
                    release(
                            request,
                            tracked.source
                                    .get())); // never scheduled: the prefiller must not wait for us
        }
        return tracked.sends()
                ? finishPrefill(request, tracked, blocks, reason)
                : FinishDecision.RELEASE;
    }

    private FinishDecision finishPrefill(
            RequestView request, Tracked tracked, BlockTable blocks, FinishReason reason) {
        boolean ended = reason == FinishReason.LENGTH || reason == FinishReason.STOP;
        var held =
                ended && request.computedTokenCount() >= request.promptTokenCount()
                        ? promptBlocks(request, blocks)
                        : List.<int[]>of();
        if (held.isEmpty()) {
            withdrawals.add(
                    new MooncakePlan.Withdrawal(
                            tracked.transferId,
                            "the prefill ended without KV to hand over (" + reason + ")"));
            return FinishDecision.RELEASE;
        }
        var hold = TransferId.save(request.id(), request.attempt());
        sends.add(new MooncakePlan.Send(hold, tracked.transferId, held));
        return new FinishDecision.Hold(hold, Deadline.in(settings.abortTimeout()), answer(tracked));
    }

    /// The blocks of the prompt alone, so that generated tokens do not shift what a decoder asks
    /// for; empty when some are missing.
    private List<int[]> promptBlocks(RequestView request, BlockTable blocks) {
        var held = new ArrayList<int[]>();
        for (var group : context.engine().cache().groups()) {
            int count = Math.ceilDiv(request.promptTokenCount(), group.blockTokens());
            if (group.index() >= blocks.groups() || blocks.count(group.index()) < count) {
                return List.of();
            }
            held.add(tail(blocks, group.index(), 0, count));
        }
        return held;
    }

    /// The params that a router that works in sequence sends to the decoder.
    private TransferParams answer(Tracked tracked) {
        if (bootstrap.isEmpty()) {
            return TransferParams.EMPTY;
        }
        return new TransferParams(
                Map.of(
                        "do_remote_prefill",
                        true,
                        "do_remote_decode",
                        false,
                        "transfer_id",
                        tracked.transferId,
                        "remote_engine_id",
                        context.config().engineId(),
                        "remote_bootstrap_addr",
                        bootstrap,
                        NAMESPACE_KEY,
                        namespace));
    }

    private void incident(RequestView request, String kind, String detail) {
        context.host()
                .events()
                .emit(
                        new TraceEvent.Incident(
                                request.id(), kind, context.instance(), Map.of("detail", detail)));
    }

    @Override
    public Optional<Deadline> pendingWork() {
        boolean unsent =
                !expects.isEmpty()
                        || !sends.isEmpty()
                        || !withdrawals.isEmpty()
                        || !pulls.isEmpty();
        return unsent ? Optional.of(Deadline.in(Duration.ZERO)) : Optional.empty();
    }

    @Override
    public void close() {
        requests.clear();
    }
}
