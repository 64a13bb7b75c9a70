// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Optional;

/// The KV connector's scheduler half.
public final class GuardedKvScheduler extends GuardedScheduler<SchedulerConnector> {
    private final int blockTokens;

    public GuardedKvScheduler(
            @Nullable SchedulerConnector half,
            ConnectorCapabilities capabilities,
            String instance,
            int blockTokens,
            Telemetry telemetry) {
        super(half, capabilities, instance, telemetry, telemetry.metrics().kv());
        this.blockTokens = blockTokens;
    }

    public void bind(BlockPool pool) {
        var target = active();
        if (target != null
                && (capabilities.has(Feature.BLOCK_LEASES) || capabilities.has(Feature.HOLD))) {
            target.bindBlockPool(pool);
        }
    }

    public void onRequest(RequestView request) {
        var target = active();
        if (target != null) {
            guard(request.id(), "onRequest", () -> target.onRequest(request));
        }
    }

    public LookupResult lookup(RequestView request, int localTokens) {
        var target = active();
        if (target == null) {
            return LookupResult.MISS;
        }
        telemetry.metrics().count(Counter.LOOKUPS);
        var answer =
                guard(
                        request.id(),
                        "lookup",
                        () -> target.lookup(request, localTokens),
                        LookupResult.MISS);
        if (answer instanceof LookupResult.Hit hit) {
            var wrong = hit.defect(capabilities, request, localTokens, blockTokens);
            if (wrong.isPresent()) {
                defect(request.id(), "illegal hit taken as a miss: " + wrong.get());
                return LookupResult.MISS;
            }
        }
        return answer;
    }

    /// Who brought the tokens of a load that has ended, as far as a composite knows it.
    public List<LookupResult.Share> delivered(TransferId load) {
        return active() instanceof SchedulerHalf.Composite composite
                ? guard(
                        load.subject(),
                        "delivered",
                        () -> List.copyOf(composite.delivered(load)),
                        List.<LookupResult.Share>of())
                : List.of();
    }

    /// @return whether the connector took the call
    public boolean onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        var target = active();
        if (target == null) {
            return true;
        }
        return guard(request.id(), "onAllocated", () -> target.onAllocated(request, blocks, load));
    }

    /// The plan; empty when the connector failed to make one.
    public Optional<Payload> buildPlan(StepView step) {
        var target = active();
        if (target == null) {
            return Optional.of(Payload.EMPTY);
        }
        return guard("", "buildPlan", () -> Optional.of(target.buildPlan(step)), Optional.empty());
    }

    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        var target = active();
        if (target == null) {
            return FinishDecision.RELEASE;
        }
        var decision =
                guard(
                        request.id(),
                        "finish",
                        () -> target.finish(request, blocks, reason),
                        FinishDecision.RELEASE);
        var legal = legal(request.id(), decision);
        boolean nothing = blocks.groups() == 0 || blocks.count(0) == 0;
        return nothing && legal instanceof FinishDecision.Hold hold
                ? new FinishDecision.Release(hold.params())
                : legal;
    }
}
