// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.telemetry;

import io.kvferry.engine.RequestListener;
import io.kvferry.engine.Usage;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// Receives what happens in the scheduler: events, cache events, counters. Failures in here never
/// fail a request.
public final class Telemetry {
    private static final Logger LOG = LoggerFactory.getLogger(Telemetry.class);
    private static final String ENGINE = "engine";

    private final Metrics metrics;
    private final EventSink sink;
    private final List<BlockHash> stored = new ArrayList<>();
    private final List<BlockHash> removed = new ArrayList<>();

    /// Whose blocks are in `stored`, from which position on, and tokens per block.
    private @Nullable RequestView storing;

    private int storedFrom;
    private int storedTokens;

    private @Nullable Consumer<CacheEvent> listener;
    private RequestListener progress = RequestListener.NONE;

    public Telemetry(Metrics metrics, EventSink sink) {
        this.metrics = metrics;
        this.sink = sink;
    }

    public Metrics metrics() {
        return metrics;
    }

    public void listen(Consumer<CacheEvent> to) {
        listener = to;
    }

    public void listen(RequestListener to) {
        progress = to;
    }

    /// A token of a request was sampled in a step whose results came at `now`.
    public void token(RequestClock clock, long now) {
        if (progress == RequestListener.NONE) {
            return;
        }
        try { // no lambda: this is called for each token
            clock.token(now, progress);
        } catch (Exception | LinkageError | AssertionError e) { // must not stop the scheduler
            LOG.warn("a request listener failed", e);
        }
    }

    public void step(int tokens) {
        tell(listening -> listening.step(tokens));
    }

    public void ended(RequestClock clock, FinishReason reason, Usage usage) {
        tell(listening -> listening.ended(reason, usage, clock.end(System.nanoTime())));
    }

    private void tell(Consumer<RequestListener> what) {
        try {
            what.accept(progress);
        } catch (Exception | LinkageError | AssertionError e) { // must not stop the scheduler
            LOG.warn("a request listener failed", e);
        }
    }

    public boolean wantsCacheEvents() {
        return listener != null;
    }

    public void incident(String requestId, String kind, String by, String what) {
        if (sink == EventSink.NONE) { // else the host says it, and once is enough
            LOG.warn(
                    "{} of {}: {}{}",
                    kind,
                    by,
                    what,
                    requestId.isEmpty() ? "" : " (request " + requestId + ")");
        }
        emit(new TraceEvent.Incident(requestId, kind, by, Map.of("what", what)));
    }

    /// A plugin broke its contract.
    public void defect(String requestId, String by, String what) {
        metrics.count(Counter.CONNECTOR_DEFECTS);
        incident(requestId, "connector-defect", by, what);
    }

    public void decision(
            RequestView request, String by, List<Share> shares, int localTokens, String reason) {
        var chosen = new StringBuilder();
        int promised = 0;
        for (var share : shares) {
            chosen.append(chosen.isEmpty() ? "" : "+").append(share.source());
            promised += share.tokens();
        }
        var rejected =
                reason.isEmpty()
                        ? List.<TraceEvent.Rejected>of()
                        : List.of(new TraceEvent.Rejected(by, reason));
        metrics.add(Counter.EXTERNAL_PROMISED_TOKENS, promised);
        metrics.add(Counter.EXTERNAL_QUERIED_TOKENS, request.tokenCount() - localTokens);
        prefixFound(request, localTokens);
        emit(
                new TraceEvent.Decision(
                        request.id(), "load-source", by, chosen.toString(), rejected, promised));
    }

    /// A request that gets its blocks was looked up in the engine's own cache.
    public void prefixFound(RequestView request, int localTokens) {
        metrics.add(Counter.LOCAL_QUERIED_TOKENS, request.tokenCount());
        metrics.add(Counter.LOCAL_HIT_TOKENS, localTokens);
    }

    /// Reports, source by source, what was promised and what was delivered. A source that replaced
    /// another one had promised nothing.
    ///
    /// @param nanos since the promise
    public void delivery(
            String requestId,
            String by,
            List<Share> promised,
            List<Share> delivered,
            long nanos,
            String failure) {
        var promisedBy = tokensBySource(promised);
        var deliveredBy = tokensBySource(delivered);
        var sources = new LinkedHashSet<>(promisedBy.keySet());
        sources.addAll(deliveredBy.keySet());
        int tokens = 0;
        for (var source : sources) {
            int brought = deliveredBy.getOrDefault(source, 0);
            tokens += brought;
            emit(
                    new TraceEvent.Delivery(
                            requestId,
                            "load-source",
                            by,
                            source,
                            "tokens",
                            promisedBy.getOrDefault(source, 0),
                            brought,
                            nanos,
                            failure));
        }
        metrics.add(Counter.EXTERNAL_DELIVERED_TOKENS, tokens);
    }

    private static Map<String, Integer> tokensBySource(List<Share> shares) {
        var tokens = new LinkedHashMap<String, Integer>();
        shares.forEach(share -> tokens.merge(share.source(), share.tokens(), Integer::sum));
        return tokens;
    }

    private void emit(TraceEvent event) {
        try {
            sink.emit(event);
        } catch (Throwable e) { // must not stop the scheduler
            LOG.warn("an event sink failed; {} is lost", event, e);
        }
    }

    /// Reports a block of group 0 that can be found in the engine's own cache from now on.
    /// Consecutive blocks of one request are reported together.
    public void blockStored(RequestView request, int position, int blockTokens) {
        if (!removed.isEmpty()) {
            flushRemoved();
        }
        if (storing != request || position != storedFrom + stored.size()) {
            flushStored();
            storing = request;
            storedFrom = position;
            storedTokens = blockTokens;
        }
        stored.add(request.blockHash(position));
    }

    public void blockRemoved(BlockHash hash) {
        if (!stored.isEmpty()) {
            flushStored();
        }
        removed.add(hash);
    }

    public void cacheCleared() {
        flush();
        forward(new CacheEvent.Cleared(ENGINE));
    }

    /// Passes on what the engine's own cache did in this step, in order.
    public void flush() {
        if (!stored.isEmpty()) {
            flushStored();
        }
        if (!removed.isEmpty()) {
            flushRemoved();
        }
    }

    private void flushStored() {
        var request = storing;
        if (request == null) {
            return;
        }
        storing = null;
        var tokens = new int[stored.size() * storedTokens];
        for (int i = 0; i < tokens.length; i++) {
            tokens[i] = request.token(storedFrom * storedTokens + i);
        }
        forward(
                new CacheEvent.Stored(
                        ENGINE,
                        LookupResult.Tier.DEVICE,
                        0,
                        storedFrom == 0
                                ? Optional.empty()
                                : Optional.of(request.blockHash(storedFrom - 1)),
                        stored,
                        storedTokens,
                        tokens,
                        extraKeys(request),
                        storedFrom == 0 ? request.cacheSalt() : ""));
        stored.clear();
    }

    /// Those of the blocks that were stored; empty when none has any.
    private List<List<ItemKey>> extraKeys(RequestView request) {
        boolean any = false;
        for (int i = 0; i < stored.size() && !any; i++) {
            any = !request.extraKeys(storedFrom + i).isEmpty();
        }
        if (!any) {
            return List.of();
        }
        var all = new ArrayList<List<ItemKey>>(stored.size());
        for (int i = 0; i < stored.size(); i++) {
            all.add(request.extraKeys(storedFrom + i));
        }
        return all;
    }

    private void flushRemoved() {
        forward(new CacheEvent.Removed(ENGINE, LookupResult.Tier.DEVICE, removed));
        removed.clear();
    }

    public void forward(CacheEvent event) {
        var to = listener;
        if (to == null) {
            return;
        }
        try {
            to.accept(event);
        } catch (Throwable e) { // must not stop the scheduler
            LOG.warn("a cache event listener failed", e);
        }
    }
}
