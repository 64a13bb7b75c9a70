// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Optional;

/// The encoder-cache connector's scheduler half.
public final class GuardedEcScheduler extends GuardedScheduler<EcSchedulerConnector> {
    public GuardedEcScheduler(
            @Nullable EcSchedulerConnector half,
            ConnectorCapabilities capabilities,
            String instance,
            Telemetry telemetry) {
        super(half, capabilities, instance, telemetry, telemetry.metrics().ec());
    }

    public void onRequest(String requestId, List<EcItem> items, TransferParams params) {
        var target = active();
        if (target != null) {
            guard(requestId, "onRequest", () -> target.onRequest(requestId, items, params));
        }
    }

    public LookupResult lookup(EcItem item) {
        var target = active();
        if (target == null) {
            return LookupResult.MISS;
        }
        var answer =
                guard(item.requestId(), "lookup", () -> target.lookup(item), LookupResult.MISS);
        if (answer instanceof LookupResult.Hit hit) {
            var wrong = hit.defect(capabilities, item.embeddings());
            if (wrong.isPresent()) {
                defect(
                        item.requestId(),
                        "illegal hit for item " + item.hash() + " taken as a miss: " + wrong.get());
                return LookupResult.MISS;
            }
        }
        return answer;
    }

    public boolean onAllocated(EcItem item, Optional<TransferId> load) {
        var target = active();
        if (target == null) {
            return true;
        }
        return guard(item.requestId(), "onAllocated", () -> target.onAllocated(item, load));
    }

    public void onFreed(String hash) {
        var target = active();
        if (target != null) {
            guard("", "onFreed", () -> target.onFreed(hash));
        }
    }

    public Optional<Payload> buildPlan(long step) {
        var target = active();
        if (target == null) {
            return Optional.of(Payload.EMPTY);
        }
        return guard("", "buildPlan", () -> Optional.of(target.buildPlan(step)), Optional.empty());
    }

    public FinishDecision finish(String requestId, FinishReason reason) {
        var target = active();
        if (target == null) {
            return FinishDecision.RELEASE;
        }
        var decision =
                guard(
                        requestId,
                        "finish",
                        () -> target.finish(requestId, reason),
                        FinishDecision.RELEASE);
        return legal(requestId, decision);
    }
}
