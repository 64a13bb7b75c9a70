// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.CompositeOptions;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.ConnectorRecovery;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/// One child's slot in the composite: holds its scheduler half and, after a defect, runs the
/// recovery that closes the half and opens a new one.
///
/// Threading: scheduler thread only.
///
/// @param <C> the half's interface
final class ChildSlot<C extends SchedulerHalf> implements ConnectorRecovery.SchedulerSide {
    private static final Logger LOG = LoggerFactory.getLogger(ChildSlot.class);

    private final SchedulerChildren<C> children;
    private final int child;
    private final Opener<C> opener;
    private final ConnectorRecovery recovery;
    private final Set<BlockPool.Lease> leases = new LinkedHashSet<>();
    private C half;
    private boolean open = true;
    private @Nullable C next;
    private int generation = 1;
    private boolean wasOff;

    /// Whether this step's plan tells the worker halves about a state change of the child.
    private boolean told;

    /// Whether the last worker half of the child was closed in this step.
    private boolean ended;

    /// Opens another scheduler half of a child.
    public interface Opener<C> {
        C open(int child, long incarnation);
    }

    ChildSlot(
            SchedulerChildren<C> children,
            int child,
            C half,
            int ranks,
            CompositeOptions options,
            Opener<C> opener) {
        this.children = children;
        this.child = child;
        this.half = half;
        this.opener = opener;
        this.recovery =
                new ConnectorRecovery(
                        children.path(child),
                        this,
                        ranks,
                        options.reopenPause(),
                        options.reopenLimit());
    }

    /// The scheduler half; while the child is off, the closed one.
    C half() {
        return half;
    }

    boolean isOff() {
        return children.guard().isOff(child);
    }

    /// Whether it ever was off.
    boolean wasOff() {
        return wasOff;
    }

    ConnectorRecovery recovery() {
        return recovery;
    }

    /// Before a plan is built.
    void begin(long now, PlanPayload plan) {
        children.guard()
                .takeTooManyDefects(child)
                .ifPresent(defect -> recovery.off(children.path(child), defect));
        recovery.begin(now);
        told = recovery.isDue();
        if (told) {
            plan.changed(
                    new CompositePayload.Change(
                            child, recovery.change(), generation, recovery.reason()));
        }
    }

    /// The plan carrying the change was not built; the next plan repeats the change.
    void notTold() {
        told = false;
    }

    /// The ranks have executed the plan.
    ///
    /// @param unclosed ranks that are still closing a half
    void executed(List<Integer> unclosed) {
        if (told || recovery.isUnclosed()) {
            told = false;
            ended = recovery.executed(unclosed);
        }
    }

    /// Fails the child's open transfers and closes its leases. Called after the reports of the step
    /// that closed the child have been processed.
    void end(OpenGroups groups) {
        if (ended) {
            ended = false;
            groups.fail(child, recovery.reason());
            List.copyOf(leases).forEach(BlockPool.Lease::close);
        }
    }

    void opened(BlockPool.Lease lease) {
        leases.add(lease);
    }

    void closed(BlockPool.Lease lease) {
        leases.remove(lease);
    }

    @Override
    public void gaveUp(String by, Failure defect) {
        wasOff = true;
        LOG.warn("{}: {}; this child is off until it can be opened again", by, defect);
        children.stoppedWorking(child, defect);
    }

    @Override
    public void closingHangs(String ranks) {
        children.closingHangs(child, ranks);
    }

    @Override
    public void disable() {
        children.guard().disable(child);
    }

    @Override
    public void closed() {
        close(half, open);
        open = false;
        discard();
    }

    @Override
    public long open() {
        long incarnation = ThreadLocalRandom.current().nextLong() & Long.MAX_VALUE;
        next = opener.open(child, incarnation);
        children.telemetry().openedAgain(children.path(child));
        return incarnation;
    }

    @Override
    public void use(List<Payload> handshakes) {
        var taken = next;
        if (taken == null) {
            throw new IllegalStateException("no half is open");
        }
        next = null;
        half = taken;
        open = true;
        generation++;
        children.use(child, generation, handshakes);
    }

    @Override
    public void onAgain(Failure reason) {
        LOG.info("{} is on again; it was off after {}", children.path(child), reason);
        children.onAgain(child, reason);
    }

    @Override
    public void discard() {
        var half = next;
        next = null;
        if (half != null) {
            close(half, true);
        }
    }

    private void close(C which, boolean isOpen) {
        if (isOpen) {
            try {
                which.close();
            } catch (Throwable e) { // the border to the plugin
                LOG.warn("closing {} failed", children.path(child), e);
            }
        }
    }

    /// Closes the slot when the composite is closed.
    ///
    /// @throws RuntimeException or an Error of the plugin's
    void close() {
        discard();
        if (open) {
            open = false;
            half.close();
        }
    }
}
