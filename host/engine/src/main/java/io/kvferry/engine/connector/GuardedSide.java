// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.ConnectorRecovery;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/// What the recovery of a connector does with its scheduler half.
///
/// Threading: scheduler thread only.
///
/// @param <H> the half's interface
public final class GuardedSide<H extends SchedulerHalf> implements ConnectorRecovery.SchedulerSide {
    private static final Logger LOG = LoggerFactory.getLogger(GuardedSide.class);

    private final GuardedScheduler<H> scheduler;
    private final Supplier<EngineInfo> incarnation;
    private final Function<EngineInfo, Optional<H>> open;
    private final Consumer<List<Payload>> introduce;
    private final Telemetry telemetry;
    private @Nullable H next;

    /// @param open opens the scheduler half for an incarnation of the engine
    /// @param introduce tells a reopened half what it has missed, starting with the handshakes by
    ///   rank
    public GuardedSide(
            GuardedScheduler<H> scheduler,
            Supplier<EngineInfo> incarnation,
            Function<EngineInfo, Optional<H>> open,
            Consumer<List<Payload>> introduce,
            Telemetry telemetry) {
        this.scheduler = scheduler;
        this.incarnation = incarnation;
        this.open = open;
        this.introduce = introduce;
        this.telemetry = telemetry;
    }

    @Override
    public void gaveUp(String by, Failure defect) {
        telemetry.metrics().count(Counter.CONNECTORS_GIVEN_UP);
        telemetry.defect(
                "", by, defect.message() + "; the connector is off until it can be opened again");
    }

    @Override
    public void closingHangs(String ranks) {
        telemetry.metrics().count(Counter.CONNECTORS_UNCLOSED);
        telemetry.incident(
                "", "connector-unclosed", scheduler.instance(), "still being closed on " + ranks);
    }

    @Override
    public void disable() {
        scheduler.disable();
    }

    @Override
    public void closed() {
        scheduler.replace(null);
        scheduler.disable();
        discard();
    }

    @Override
    public long open() {
        var engine = incarnation.get();
        next = open.apply(engine).orElseThrow();
        return engine.incarnation();
    }

    @Override
    public void use(List<Payload> handshakes) {
        scheduler.replace(next);
        next = null;
        introduce.accept(handshakes);
    }

    @Override
    public void onAgain(Failure reason) {
        telemetry.metrics().count(Counter.CONNECTORS_REOPENED);
        telemetry.incident(
                "", "connector-on-again", scheduler.instance(), "it was off after " + reason);
    }

    @Override
    public void discard() {
        var half = next;
        next = null;
        if (half != null) {
            try {
                half.close();
            } catch (Throwable e) { // the border to the plugin
                LOG.warn("closing {} failed", scheduler.instance(), e);
            }
        }
    }
}
