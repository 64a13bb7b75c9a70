// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/// Turns a connector off after a defect and opens it again later.
///
/// | state | worker halves | what comes next |
/// |---|---|---|
/// | ON | in use | a defect |
/// | CLOSING | are closed with the next step, on every rank; then nothing of the connector is open | OFF, or UNCLOSED |
/// | UNCLOSED | some rank's is still being closed: what the connector has open there has not ended | the last of them is closed: OFF |
/// | OFF | none | after a pause: the scheduler half is opened |
/// | OPENING | are being opened | every rank has said how it went: READY, else, also after a time limit, CLOSING |
/// | READY | open | with the next step: ON |
///
/// Threading: scheduler thread, but for [#status].
public final class ConnectorRecovery implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ConnectorRecovery.class);
    private static final Duration LONGEST_PAUSE = Duration.ofMinutes(1);

    /// Polling interval for ranks that are closing a half. A rank wakes the engine when done; this
    /// covers a lost wake-up.
    private static final long ASK_AGAIN_NANOS = Duration.ofSeconds(1).toNanos();

    /// A pause of nothing would stay nothing when doubled, and the attempts would never end.
    private static final Duration SHORTEST_PAUSE = Duration.ofMillis(10);

    /// A connector that was on for this long begins anew with the first pause.
    private static final long STABLE_NANOS = Duration.ofMinutes(1).toNanos();

    private final String instance;
    private final SchedulerSide side;
    private final Duration firstPause;
    private final Duration openLimit;
    private final @Nullable Opened[] byRank;

    private State state = State.ON;
    private ConnectorChange change = ConnectorChange.NONE;
    private Failure reason = new Failure(ErrorCode.INTERNAL, "");
    private Duration pause;
    private long retryAt;
    private long openBy;
    private long askAt;
    private long onSince = System.nanoTime();
    private volatile String status = "";

    private enum State {
        ON,
        CLOSING,
        UNCLOSED,
        OFF,
        OPENING,
        READY
    }

    /// What is done with the connector's scheduler half.
    public interface SchedulerSide {
        /// The first defect since the connector was on.
        ///
        /// @param by which half
        void gaveUp(String by, Failure defect);

        /// Some ranks take long to close their halves; the connector stays off until they have.
        void closingHangs(String ranks);

        /// From now on the half is asked for nothing.
        void disable();

        /// No rank has a half, so nothing of the connector is open: closes the scheduler half,
        /// including one opened since by [#open].
        void closed();

        /// Opens another half, which is not in use yet.
        ///
        /// @return its incarnation, for the worker halves
        /// @throws RuntimeException or an Error when it cannot be opened now
        long open();

        /// Puts the half opened by [#open] into use and tells it what it has missed.
        ///
        /// @param handshakes by rank
        /// @throws RuntimeException or an Error of the plugin's
        void use(List<Payload> handshakes);

        /// The connector is on again.
        ///
        /// @param reason why it was off
        void onAgain(Failure reason);

        /// Closes what [#open] has opened and [#use] has not taken.
        void discard();
    }

    /// @param firstPause between a defect and the first attempt; twice as long each time; at least
    ///   10 ms
    /// @param openLimit how long the ranks may take to open their halves
    public ConnectorRecovery(
            String instance,
            SchedulerSide side,
            int ranks,
            Duration firstPause,
            Duration openLimit) {
        this.instance = instance;
        this.side = side;
        this.byRank = new Opened[ranks];
        this.firstPause = firstPause.compareTo(SHORTEST_PAUSE) < 0 ? SHORTEST_PAUSE : firstPause;
        this.openLimit = openLimit;
        this.pause = this.firstPause;
    }

    /// Why the connector is off; empty while it is on. Any thread.
    public String status() {
        return status;
    }

    public boolean isOn() {
        return state == State.ON;
    }

    /// A defect in one of the halves. Only the first one counts until the connector is on again.
    public void off(String by, Failure defect) {
        if (state != State.ON) {
            LOG.debug("{} failed again: {}", by, defect);
            return;
        }
        side.gaveUp(by, defect);
        if (System.nanoTime() - onSince > STABLE_NANOS) {
            pause = firstPause;
        }
        close(defect);
    }

    private void close(Failure why) {
        reason = why;
        status = off();
        side.disable();
        state = State.CLOSING;
        change = ConnectorChange.CLOSE;
        retryAt = System.nanoTime() + pause.toNanos();
        var twice = pause.multipliedBy(2);
        pause = twice.compareTo(LONGEST_PAUSE) > 0 ? LONGEST_PAUSE : twice;
    }

    /// Before a step is planned: goes on as far as is possible without the workers.
    public void begin(long now) {
        if (state == State.OFF && now - retryAt >= 0) {
            open(now);
        } else if (state == State.OPENING && now - openBy >= 0) {
            close(
                    new Failure(
                            ErrorCode.TIMEOUT,
                            "not every rank has opened its half within " + openLimit));
        } else if (state == State.READY) {
            use();
        }
    }

    private void open(long now) {
        try {
            long incarnation = side.open();
            Arrays.fill(byRank, null);
            change = ConnectorChange.open(incarnation);
            openBy = now + openLimit.toNanos();
            state = State.OPENING;
        } catch (Throwable e) { // the border to the plugin
            LOG.debug("{} cannot be opened yet", instance, e);
            close(Failure.of(e));
        }
    }

    private void use() {
        try {
            side.use(Arrays.stream(byRank).map(ConnectorRecovery::handshake).toList());
        } catch (Throwable e) { // the border to the plugin
            close(Failure.of(e));
            return;
        }
        state = State.ON;
        change = ConnectorChange.USE;
        onSince = System.nanoTime();
        status = "";
        side.onAgain(reason);
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
    /// @param unclosed the ranks that are still closing a half, by their numbers
    /// @return whether the halves of all of them are closed now: what the connector had open is
    ///   over
    public boolean executed(List<Integer> unclosed) {
        boolean told = change.kind() == ConnectorChange.Kind.CLOSE;
        change = ConnectorChange.NONE;
        if (!told && state != State.UNCLOSED) {
            return false;
        }
        if (unclosed.isEmpty()) {
            state = State.OFF;
            status = off();
            side.closed();
            return true;
        }
        if (state != State.UNCLOSED) {
            state = State.UNCLOSED;
            var ranks = (unclosed.size() == 1 ? "rank " : "ranks ") + join(unclosed);
            status = off() + "; still being closed on " + ranks;
            LOG.warn("{}: still being closed on {}", instance, ranks);
            side.closingHangs(ranks);
        }
        askAt = System.nanoTime() + ASK_AGAIN_NANOS;
        return false;
    }

    private String off() {
        return instance + " is off until it can be opened again: " + reason;
    }

    private static String join(List<Integer> ranks) {
        return ranks.stream().map(String::valueOf).collect(Collectors.joining(", "));
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

    /// Whether some rank is still closing its half.
    public boolean isUnclosed() {
        return state == State.UNCLOSED;
    }

    /// Whether the workers have to hear something, or have something to say, although nothing is
    /// computed.
    public boolean hasNews() {
        return state == State.OPENING || state == State.UNCLOSED || isDue();
    }

    /// Whether the next step goes on with it at once.
    public boolean isDue() {
        return state == State.READY || !change.equals(ConnectorChange.NONE);
    }

    /// Nanoseconds until [#begin] has something to do by itself; [Long#MAX_VALUE] for never.
    public long untilDue(long now) {
        return switch (state) {
            case OFF -> Math.max(0, retryAt - now);
            case OPENING -> Math.max(0, openBy - now);
            case UNCLOSED -> Math.max(0, askAt - now);
            case ON, CLOSING, READY -> Long.MAX_VALUE;
        };
    }

    /// All workers begin anew, and the connector with them.
    public void reset() {
        side.discard();
        state = State.ON;
        change = ConnectorChange.NONE;
        status = "";
    }

    /// The engine ends.
    @Override
    public void close() {
        side.discard();
    }
}
