// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.multiconnector.PartFigures;
import io.kvferry.multiconnector.composite.CompositeCapabilities;
import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.recovery.WorkerSlot;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.ObjIntConsumer;

/// The worker halves of the children on one rank, and the operations shared by the KV and
/// encoder-cache composites: splits plans and revocations, merges reports, and turns off a child
/// that throws until the scheduler half has it reopened.
///
/// Threading: the rank's step thread only.
public final class WorkerChildren<C extends WorkerHalf> {
    private static final Logger LOG = LoggerFactory.getLogger(WorkerChildren.class);

    private final String instance;
    private final int rank;
    private final List<CompositeCapabilities.Member> members;
    private final ChildNames names;
    private final ChildTransfers transfers;
    private final PartFigures figures;
    private final List<WorkerSlot<C>> slots = new ArrayList<>();
    private final Opener<C> opener;
    private final Runnable wake;
    private Consumer<C> registration = _ -> {};

    private final WireWriter out = new WireWriter(1024);

    private final WorkerStep[] steps;
    private final boolean[] drain;

    /// Why children are off whose halves are still being closed.
    private final @Nullable Failure[] closing;

    /// Children that threw and have not been reported to the scheduler half yet.
    private final List<CompositePayload.Broken> untold = new ArrayList<>();

    /// Opens another worker half of a child; on a thread of its own.
    public interface Opener<C> {
        C open(int child, long incarnation);
    }

    /// @param members what the children claim, in order
    /// @param wake asks the engine for a step
    /// @param closeGrace how long a step waits for a half that is given up
    public WorkerChildren(
            String instance,
            int rank,
            List<CompositeCapabilities.Member> members,
            List<C> halves,
            Opener<C> opener,
            Runnable wake,
            Duration closeGrace) {
        this.instance = instance;
        this.opener = opener;
        this.wake = wake;
        this.members = List.copyOf(members);
        var names = members.stream().map(CompositeCapabilities.Member::name).toList();
        this.rank = rank;
        this.names = new ChildNames(names);
        this.transfers = new ChildTransfers(this.names, rank);
        this.figures = new PartFigures(names);
        this.steps = new WorkerStep[halves.size()];
        this.drain = new boolean[halves.size()];
        this.closing = new Failure[halves.size()];
        for (int i = 0; i < halves.size(); i++) {
            int child = i;
            slots.add(
                    new WorkerSlot<>(
                            instance + "/" + names.get(i) + " on rank " + rank,
                            halves.get(i),
                            half -> handshake(child, half),
                            closeGrace));
        }
    }

    int count() {
        return slots.size();
    }

    /// Registers the cache with every half, including halves opened later. Exceptions are not
    /// isolated: without registered memory the engine must not start.
    void register(Consumer<C> with) {
        registration = with;
        for (int i = 0; i < count(); i++) {
            with.accept(first(i));
        }
    }

    /// The half that the child was opened with.
    private C first(int child) {
        return Objects.requireNonNull(slots.get(child).half(), "closed before the first step");
    }

    boolean has(int child, Feature feature) {
        return members.get(child).has(feature);
    }

    String name(int child) {
        return names.name(child);
    }

    String instance() {
        return instance;
    }

    /// Whether the child must finish its layer-wise loads within `beginStep`.
    boolean mustDrain(int child) {
        return drain[child];
    }

    WorkerStep step(int child) {
        return steps[child];
    }

    /// Decodes the plan of a step; afterwards [#step] returns each child's part.
    void begin(WorkerStep step) {
        var frame = CompositePayload.decode(step.plan(), count());
        Arrays.fill(drain, false);
        frame.changes().forEach(this::change);
        for (var opened : frame.opened()) {
            drain[opened.child()] |= opened.drain();
            transfers.open(opened);
        }
        var revoked = transfers.revocations(step.revoked(), frame.revoked());
        for (int i = 0; i < steps.length; i++) {
            steps[i] =
                    new WorkerStep(
                            step.number(),
                            frame.children()[i],
                            revoked.get(i),
                            step.forward(),
                            step.limit());
        }
        frame.closed().forEach(transfers::close);
    }

    private void change(CompositePayload.Change change) {
        int child = change.child();
        switch (change.change().kind()) {
            case NONE -> {}
            case CLOSE -> giveUp(child, change.reason());
            case USE -> {
                slots.get(child).change(change.change(), this::never, wake);
                names.renew(child, change.generation());
                transfers.use(child);
            }
            case OPEN ->
                    slots.get(child)
                            .change(
                                    change.change(),
                                    incarnation -> opened(child, incarnation),
                                    wake);
        }
    }

    private C never(long incarnation) {
        throw new IllegalStateException("opened already, as " + incarnation);
    }

    /// Opens a half and registers the cache with it. Runs on a separate thread.
    private C opened(int child, long incarnation) {
        var half = opener.open(child, incarnation);
        try {
            registration.accept(half);
            return half;
        } catch (Throwable e) { // closes in every case
            try (half) {
                throw e;
            }
        }
    }

    private String path(int child) {
        return instance + "/" + names.name(child);
    }

    /// Calls every working child in order. A child that throws is given up, and all its open
    /// transfers on this rank fail.
    void each(String what, ObjIntConsumer<C> body) {
        for (int i = 0; i < count(); i++) {
            var half = slots.get(i).half();
            if (!transfers.isOff(i) && half != null) {
                try {
                    body.accept(half, i);
                } catch (Throwable e) { // Errors too, e.g. a class missing from the plugin
                    breaks(i, what, e);
                }
            }
        }
    }

    private void breaks(int child, String what, Throwable e) {
        LOG.error(
                "{}: {} failed on rank {}; this child is off until it can be opened again",
                path(child),
                what,
                rank,
                e);
        var cause = Failure.of(e);
        var failure =
                new Failure(
                        cause.code(),
                        path(child) + ": " + what + " on rank " + rank + ": " + cause.message());
        untold.add(new CompositePayload.Broken(child, failure));
        giveUp(child, failure);
    }

    /// Closes the child's half. Its transfers are reported as failed only once it is closed,
    /// because until then it may touch blocks. Steps of the siblings continue meanwhile.
    private void giveUp(int child, Failure why) {
        try {
            slots.get(child).giveUp(wake);
        } catch (Throwable e) { // the border to the plugin
            LOG.error("{}: and close failed too", path(child), e);
        }
        if (slots.get(child).isClosing()) {
            closing[child] = why;
            transfers.closing(child, why);
        } else {
            transfers.giveUp(child, why);
        }
    }

    /// @return the children that are still being closed
    private List<Integer> endClosed() {
        List<Integer> unclosed = List.of();
        for (int i = 0; i < closing.length; i++) {
            var why = closing[i];
            if (why == null) {
                continue;
            }
            if (slots.get(i).isClosing()) {
                unclosed = unclosed.isEmpty() ? new ArrayList<>() : unclosed;
                unclosed.add(i);
            } else {
                closing[i] = null;
                transfers.giveUp(i, why);
            }
        }
        return unclosed;
    }

    /// Puts the children's reports together.
    StepReport report(WorkerStep step) {
        var payloads = new Payload[count()];
        Arrays.fill(payloads, Payload.EMPTY);
        var completions = new ArrayList<Completion>(0);
        List<CacheEvent> events = new ArrayList<>(0);
        each(
                "report",
                (half, child) -> {
                    var one =
                            Objects.requireNonNull(
                                    half.report(steps[child]), "report answered null");
                    for (var completion : one.completions()) {
                        var outward = names.outward(child, completion.id());
                        // Add before calling `ended`: if allocation fails here, the transfer is
                        // still open and is not lost.
                        completions.add(
                                new Completion(
                                        outward,
                                        completion.rank(),
                                        Objects.requireNonNull(
                                                completion.result(), "result of a completion")));
                        if (!transfers.ended(child, outward)) {
                            completions.removeLast();
                            figures.count(child, "multi_unknown_loads", 1);
                        }
                    }
                    payloads[child] = Objects.requireNonNull(one.payload(), "payload of a report");
                    figures.add(child, one.stats());
                    events.addAll(one.events());
                });
        var news = news();
        transfers.drainOwn(completions);
        var payload =
                new CompositePayload(payloads, List.of(), List.of(), List.of(), List.of(), news)
                        .encode(out);
        return new StepReport(rank, step.number(), completions, payload, figures.drain(), events);
    }

    private CompositePayload.News news() {
        List<CompositePayload.Again> again = List.of();
        for (int i = 0; i < count(); i++) {
            var opened = slots.get(i).takeOpened();
            if (opened.isPresent()) {
                again = again.isEmpty() ? new ArrayList<>() : again;
                again.add(new CompositePayload.Again(i, opened.get()));
            }
        }
        var unclosed = endClosed();
        if (untold.isEmpty() && again.isEmpty() && unclosed.isEmpty()) {
            return CompositePayload.News.NONE;
        }
        var news = new CompositePayload.News(List.copyOf(untold), again, unclosed);
        untold.clear();
        return news;
    }

    /// Takes memory from the first child that provides it. An event tells which other children
    /// could have provided memory: the cache now lies in memory that they may not reach.
    Optional<ProvidedMemory> provideMemory(long bytes, EventSink events) {
        var provided = Optional.<ProvidedMemory>empty();
        var chosen = "";
        var rejected = new ArrayList<TraceEvent.Rejected>();
        for (int i = 0; i < count(); i++) {
            if (!has(i, Feature.PROVIDES_MEMORY)) {
                continue;
            }
            if (provided.isPresent()) {
                rejected.add(
                        new TraceEvent.Rejected(
                                names.name(i), "the cache lies in memory of " + chosen));
                continue;
            }
            provided = first(i).provideMemory(bytes);
            if (provided.isPresent()) {
                chosen = names.name(i);
            } else {
                rejected.add(new TraceEvent.Rejected(names.name(i), "has none"));
            }
        }
        if (provided.isPresent() || !rejected.isEmpty()) {
            events.emit(
                    new TraceEvent.Decision("", "cache-memory", instance, chosen, rejected, bytes));
        }
        return provided;
    }

    /// One handshake out of those of the children.
    Payload handshake() {
        var payloads = new Payload[count()];
        for (int i = 0; i < payloads.length; i++) {
            payloads[i] = handshake(i, first(i));
        }
        return CompositePayload.ofChildren(payloads).encode(out);
    }

    private Payload handshake(int child, C half) {
        return has(child, Feature.HANDSHAKE) ? half.handshake() : Payload.EMPTY;
    }

    /// @throws KvFerryException when threads of a child may still touch the cache
    void close() {
        var failures = new ArrayList<KvFerryException>(0);
        for (int i = 0; i < count(); i++) {
            try {
                slots.get(i).close();
            } catch (Throwable e) { // every child must get its turn
                failures.add(notClosed(i, e.toString(), e));
                continue;
            }
            if (slots.get(i).isUnclosed()) {
                failures.add(notClosed(i, "it had been given up before", null));
            }
        }
        if (!failures.isEmpty()) {
            // TIMEOUT first: on TIMEOUT the caller retries close until the last child is closed.
            failures.sort(Comparator.comparing(failure -> failure.code() != ErrorCode.TIMEOUT));
            var first = failures.getFirst();
            failures.stream().skip(1).forEach(first::addSuppressed);
            throw first;
        }
    }

    private KvFerryException notClosed(int child, String why, @Nullable Throwable cause) {
        var code = cause instanceof KvFerryException coded ? coded.code() : ErrorCode.INTERNAL;
        var message = path(child) + ": close failed on rank " + rank + ": " + why;
        return cause == null
                ? new KvFerryException(code, message)
                : new KvFerryException(code, message, cause);
    }
}
