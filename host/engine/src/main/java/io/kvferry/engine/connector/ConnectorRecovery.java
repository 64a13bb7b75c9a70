// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.ConnectorChange;
import io.kvferry.engine.worker.RankResult.Opened;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/// Turns a connector off after a defect and opens it again later.
///
/// | state | worker halves | what comes next |
/// |---|---|---|
/// | ON | in use | a defect |
/// | CLOSING | are closed with the next step, on every rank; then nothing of the connector is open | OFF |
/// | OFF | none | after a pause: the scheduler half is opened |
/// | OPENING | are being opened | every rank has said how it went: READY, else CLOSING |
/// | READY | open | with the next step: ON |
///
/// Threading: scheduler thread, but for [#status].
///
/// @param <H> the scheduler half's interface
public final class ConnectorRecovery<H extends SchedulerHalf> {
    private static final Logger LOG = LoggerFactory.getLogger(ConnectorRecovery.class);
    private static final Duration LONGEST_PAUSE = Duration.ofMinutes(1);

    /// A connector that was on for this long begins anew with the first pause.
    private static final long STABLE_NANOS = Duration.ofMinutes(1).toNanos();

    private final GuardedScheduler<H> side;
    private final Supplier<EngineInfo> incarnation;
    private final Function<EngineInfo, Optional<H>> open;
    private final Consumer<List<Payload>> introduce;
    private final Duration firstPause;
    private final Telemetry telemetry;
    private final @Nullable Opened[] byRank;

    private State state = State.ON;
    private ConnectorChange change = ConnectorChange.NONE;
    private @Nullable H next;
    private Failure reason = new Failure(ErrorCode.INTERNAL, "");
    private Duration pause;
    private long retryAt;
    private long onSince = System.nanoTime();
    private volatile String status = "";

    private enum State {
        ON,
        CLOSING,
        OFF,
        OPENING,
        READY
    }

    /// @param open opens the scheduler half for an incarnation of the engine
    /// @param introduce tells a half that is on again what it has missed, from the handshakes by
    ///   rank on
    public ConnectorRecovery(
            GuardedScheduler<H> side,
            int ranks,
            Supplier<EngineInfo> incarnation,
            Function<EngineInfo, Optional<H>> open,
            Consumer<List<Payload>> introduce,
            Duration firstPause,
            Telemetry telemetry) {
        this.side = side;
        this.byRank = new Opened[ranks];
        this.incarnation = incarnation;
        this.open = open;
        this.introduce = introduce;
        this.firstPause = firstPause;
        this.pause = firstPause;
        this.telemetry = telemetry;
    }

    /// Why the connector is off; empty while it is on. Any thread.
    public String status() {
        return status;
    }

    /// A defect in one of the halves. Only the first one counts until the connector is on again.
    public void off(String by, Failure defect) {
        if (state != State.ON) {
            LOG.debug("{} failed again: {}", by, defect);
            return;
        }
        telemetry.metrics().count(Counter.CONNECTORS_GIVEN_UP);
        telemetry.defect(
                "", by, defect.message() + "; the connector is off until it can be opened again");
        if (System.nanoTime() - onSince > STABLE_NANOS) {
            pause = firstPause;
        }
        close(defect);
    }

    private void close(Failure why) {
        reason = why;
        status = side.instance() + " is off until it can be opened again: " + why;
        side.disable();
        state = State.CLOSING;
        change = ConnectorChange.CLOSE;
        retryAt = System.nanoTime() + pause.toNanos();
        var twice = pause.multipliedBy(2);
        pause = twice.compareTo(LONGEST_PAUSE) > 0 ? LONGEST_PAUSE : twice;
    }

    /// Before a step is planned: goes on as far as is possible without the workers.
    public void begin(long now) {
        side.takeTooManyDefects().ifPresent(defect -> off(side.instance(), defect));
        if (state == State.OFF && now - retryAt >= 0) {
            open();
        } else if (state == State.READY) {
            use();
        }
    }

    private void open() {
        try {
            var engine = incarnation.get();
            next = open.apply(engine).orElseThrow();
            Arrays.fill(byRank, null);
            change = ConnectorChange.open(engine.incarnation());
            state = State.OPENING;
        } catch (Throwable e) { // the border to the plugin
            LOG.debug("{} cannot be opened yet", side.instance(), e);
            close(Failure.of(e));
        }
    }

    private void use() {
        side.replace(next);
        next = null;
        var payloads = Arrays.stream(byRank).map(ConnectorRecovery::handshake).toList();
        if (!introduced(payloads)) {
            return;
        }
        state = State.ON;
        change = ConnectorChange.USE;
        onSince = System.nanoTime();
        status = "";
        telemetry.metrics().count(Counter.CONNECTORS_REOPENED);
        telemetry.incident("", "connector-on-again", side.instance(), "it was off after " + reason);
    }

    private boolean introduced(List<Payload> payloads) {
        try {
            introduce.accept(payloads);
            return true;
        } catch (Throwable e) { // the border to the plugin
            close(Failure.of(e));
            return false;
        }
    }

    private static Payload handshake(@Nullable Opened opened) {
        return opened == null ? Payload.EMPTY : opened.handshake();
    }

    /// What the next step has to tell the ranks.
    public ConnectorChange change() {
        return change;
    }

    /// The ranks have executed a step with [#change].
    ///
    /// @return whether their halves were closed in it: what the connector had open is over
    public boolean executed() {
        boolean closed = change.kind() == ConnectorChange.Kind.CLOSE;
        change = ConnectorChange.NONE;
        if (closed) {
            state = State.OFF;
            side.replace(null);
            side.disable();
            closeNext();
        }
        return closed;
    }

    /// A rank says how opening its half went.
    public void opened(int rank, Opened how) {
        if (state != State.OPENING) {
            return;
        }
        byRank[rank] = how;
        Failure failure = null;
        for (var each : byRank) {
            if (each == null) {
                return; // all of them first, so that none is left behind
            }
            failure = each.failure().orElse(failure);
        }
        if (failure == null) {
            state = State.READY;
        } else {
            close(failure);
        }
    }

    /// Why the connector is off.
    public Failure reason() {
        return reason;
    }

    /// Whether the workers have to hear something, or have something to say, although nothing is
    /// computed.
    public boolean hasNews() {
        return state == State.OPENING || isDue();
    }

    /// Whether the next step goes on with it at once.
    public boolean isDue() {
        return state == State.READY || !change.equals(ConnectorChange.NONE);
    }

    /// Nanoseconds until [#begin] has something to do by itself; [Long#MAX_VALUE] for never.
    public long untilDue(long now) {
        return state == State.OFF ? Math.max(0, retryAt - now) : Long.MAX_VALUE;
    }

    /// All workers and both connectors begin anew.
    public void reset() {
        closeNext();
        state = State.ON;
        change = ConnectorChange.NONE;
        status = "";
    }

    private void closeNext() {
        var half = next;
        next = null;
        if (half != null) {
            try {
                half.close();
            } catch (Throwable e) { // the border to the plugin
                LOG.warn("closing {} failed", side.instance(), e);
            }
        }
    }

    /// The engine ends.
    public void close() {
        closeNext();
    }
}
