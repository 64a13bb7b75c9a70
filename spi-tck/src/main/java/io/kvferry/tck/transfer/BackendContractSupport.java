// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.LeakCheck;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// What a subclass of [TransferBackendContract] supplies, and what its tests share: agents, memory
/// of every kind, and a loop that gives each agent its turn.
abstract class BackendContractSupport {
    /// Addresses, lengths and offsets in tests are multiples of it, so that aligned backends can
    /// serve them.
    static final long UNIT = 4096;

    @TempDir Path folder;

    private final List<Agent> agents = new ArrayList<>();
    private Arena arena = Arena.ofShared();
    private LeakCheck leaks = LeakCheck.snapshot();
    private int names;
    private int files;

    /// The backend under test.
    protected abstract TransferBackendProvider provider();

    /// Options of one agent; all agents of a test must be able to reach each other.
    protected abstract Map<String, Object> options(String agent);

    /// Lets the payload of the next transfer arrive with a wrong byte. False where that cannot be
    /// done.
    protected boolean damageInTransit() {
        return false;
    }

    /// Closes what the subclass opened to damage transfers; called after each test, when its agents
    /// are closed.
    protected void release() {}

    protected Duration limit() {
        return Duration.ofSeconds(20);
    }

    /// Memory of a kind. HOST and FILE are known here; override for others.
    protected MemoryRange memory(MemoryKind kind, long bytes) {
        return switch (kind) {
            case HOST -> new MemoryRange.Host(arena.allocate(bytes, UNIT));
            case FILE -> new MemoryRange.FileRange(file(bytes), 0, bytes, true);
            case DEVICE, OBJECT, VOLUME ->
                    throw new AssertionError("override memory() for " + kind);
        };
    }

    /// The bytes of memory made by [#memory].
    protected byte[] contents(MemoryRange range) {
        return switch (range) {
            case MemoryRange.Host(MemorySegment segment) -> segment.toArray(ValueLayout.JAVA_BYTE);
            case MemoryRange.FileRange(Path path, long offset, long length, _) ->
                    read(path, offset, (int) length);
            case MemoryRange.Device _, MemoryRange.ObjectRange _, MemoryRange.VolumeRange _ ->
                    throw new AssertionError("override contents() for " + range.kind());
        };
    }

    /// Writes bytes into memory made by [#memory].
    protected void fill(MemoryRange range, byte[] bytes) {
        switch (range) {
            case MemoryRange.Host(MemorySegment segment) ->
                    MemorySegment.copy(bytes, 0, segment, ValueLayout.JAVA_BYTE, 0, bytes.length);
            case MemoryRange.FileRange(Path path, long offset, _, _) -> write(path, offset, bytes);
            case MemoryRange.Device _, MemoryRange.ObjectRange _, MemoryRange.VolumeRange _ ->
                    throw new AssertionError("override fill() for " + range.kind());
        }
    }

    private Path file(long bytes) {
        var path = folder.resolve("memory-" + files++);
        write(path, 0, new byte[(int) bytes]);
        return path;
    }

    private static void write(Path path, long offset, byte[] bytes) {
        try (var channel =
                FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.wrap(bytes), offset);
        } catch (IOException e) {
            throw new UncheckedIOException(path.toString(), e);
        }
    }

    private static byte[] read(Path path, long offset, int length) {
        try {
            var all = ByteBuffer.wrap(Files.readAllBytes(path));
            var bytes = new byte[length];
            all.position((int) offset).get(bytes, 0, Math.min(length, all.remaining()));
            return bytes;
        } catch (IOException e) {
            throw new UncheckedIOException(path.toString(), e);
        }
    }

    @BeforeEach
    final void takeStock() {
        leaks = LeakCheck.snapshot();
    }

    @AfterEach
    final void closeAndCheckLeaks() {
        agents.forEach(agent -> agent.backend.close());
        release();
        arena.close();
        arena = Arena.ofShared();
        leaks.mustBeClean();
    }

    /// A notification as it arrived.
    record Note(PeerId from, byte[] bytes) {}

    /// An agent with an open backend, and what its sink heard.
    final class Agent implements BackendContext.Sink {
        final PeerId id;
        final TransferBackend backend;
        final ConcurrentLinkedQueue<Note> notes = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<PeerState> states = new ConcurrentLinkedQueue<>();
        volatile Runnable onNote = () -> {};

        Agent(PeerId id, TransferBackendProvider provider) {
            this.id = id;
            var options =
                    provider.options().read("options of " + provider.name(), options(id.agent()));
            backend = provider.open(new BackendContext(id, options, this, EventSink.NONE));
            agents.add(this);
        }

        @Override
        public void notified(PeerId from, byte[] notification) {
            onNote.run();
            notes.add(new Note(from, notification));
        }

        @Override
        public void peerChanged(PeerId peer, PeerState state, String why) {
            states.add(state);
        }

        /// Learns all that the other has to tell now.
        void meet(Agent other) {
            backend.loadPeer(other.id, other.backend.localMetadata());
        }

        Area area(MemoryKind kind, long bytes) {
            var range = memory(kind, bytes);
            return new Area(this, range, backend.register(range));
        }
    }

    /// Registered memory of an agent.
    record Area(Agent agent, MemoryRange range, Registration registration) {
        DescriptorList whole() {
            return DescriptorList.of(registration);
        }

        DescriptorList part(long offset, long length) {
            return DescriptorList.of(
                    range.kind(), registration.device(), registration.address() + offset, length);
        }
    }

    /// Both sides of a route: the remote one is with the same agent for LOOPBACK.
    record Sides(Agent near, Area local, Area remote, Route route) {
        Optional<PeerId> peer() {
            return remote.agent == near ? Optional.empty() : Optional.of(remote.agent.id);
        }

        Prepared prepareLocal(DescriptorList list) {
            return near.backend.prepare(Optional.empty(), list);
        }

        Prepared prepareRemote(DescriptorList list) {
            return near.backend.prepare(peer(), list);
        }
    }

    final Agent agent() {
        return agent(provider());
    }

    final Agent agent(TransferBackendProvider provider) {
        return new Agent(new PeerId("agent-" + names++, System.nanoTime()), provider);
    }

    final BackendCapabilities claimed() {
        var options =
                provider().options().read("options of " + provider().name(), options("static"));
        return provider().capabilities(options);
    }

    final boolean has(BackendCapabilities.Feature feature) {
        return claimed().has(feature);
    }

    final boolean remote() {
        return claimed().routes().stream().anyMatch(route -> route.scope() == Route.Scope.REMOTE);
    }

    /// Any claimed route, a remote one where there is one.
    final Route anyRoute() {
        return claimed().routes().stream()
                .sorted(
                        Comparator.comparing(Route::scope)
                                .reversed()
                                .thenComparing(Route::operation)
                                .thenComparing(Route::local)
                                .thenComparing(Route::remote))
                .findFirst()
                .orElseThrow();
    }

    final Sides sides(Route route, long bytes) {
        var near = agent();
        var far = route.scope() == Route.Scope.REMOTE ? agent() : near;
        var local = near.area(route.local(), bytes);
        var remote = far.area(route.remote(), bytes);
        if (far != near) {
            near.meet(far);
            far.meet(near);
        }
        return new Sides(near, local, remote, route);
    }

    final Deadline soon() {
        return Deadline.in(limit());
    }

    final byte[] random(long bytes, long seed) {
        var data = new byte[(int) bytes];
        new Random(seed).nextBytes(data);
        return data;
    }

    final Transfer submit(Sides sides, DescriptorList local, DescriptorList remote) {
        return sides.near.backend.submit(
                new TransferRequest(
                        sides.route.operation(),
                        sides.prepareLocal(local),
                        sides.prepareRemote(remote),
                        soon()));
    }

    /// Where the bytes of the route come from, and where they go.
    static MemoryRange source(Sides sides) {
        return sides.route.operation() == Operation.READ ? sides.remote.range : sides.local.range;
    }

    static MemoryRange target(Sides sides) {
        return sides.route.operation() == Operation.READ ? sides.local.range : sides.remote.range;
    }

    /// Gives every agent its turn until the condition holds.
    final void until(String what, BooleanSupplier condition) {
        until(what, agents, condition);
    }

    /// Gives some agents their turn, and the others none, until the condition holds.
    final void until(String what, List<Agent> moving, BooleanSupplier condition) {
        long end = System.nanoTime() + limit().toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + limit() + ": " + what);
            }
            if (turn(moving) == 0) {
                LockSupport.parkNanos(50_000);
            }
        }
    }

    final int turn() {
        return turn(agents);
    }

    private int turn(List<Agent> moving) {
        int done = 0;
        for (var agent : moving) {
            if (!closed.contains(agent)) {
                done += agent.backend.poll();
            }
        }
        return done;
    }

    private final List<Agent> closed = new ArrayList<>();

    /// Closes an agent and keeps nothing of it.
    final void forget(Agent agent) {
        agent.backend.close();
        agents.remove(agent);
    }

    final void close(Agent agent) {
        closed.add(agent);
        agent.backend.close();
    }

    /// The outcome, once nothing touches the buffers any more.
    final TransferOutcome end(Transfer transfer) {
        until("end of the transfer", () -> transfer.poll().isPresent());
        var quiesced = transfer.quiesced().toCompletableFuture();
        until("quiescence of the transfer", quiesced::isDone);
        var outcome = transfer.poll().orElseThrow();
        assertThat(transfer.completion().toCompletableFuture()).isCompletedWithValue(outcome);
        return outcome;
    }

    final TransferOutcome.Done done(Transfer transfer) {
        var outcome = end(transfer);
        assertThat(outcome)
                .as("outcome of a transfer that nothing hinders")
                .isInstanceOf(TransferOutcome.Done.class);
        return (TransferOutcome.Done) outcome;
    }

    /// The target holds these bytes: at once where DONE means applied, else soon.
    final void holds(MemoryRange target, byte[] expected) {
        if (has(BackendCapabilities.Feature.APPLIED_ON_COMPLETION)) {
            assertThat(contents(target)).isEqualTo(expected);
        } else {
            until("arrival of the bytes", () -> Arrays.equals(contents(target), expected));
        }
    }

    static void refuses(ThrowingCallable call, String what, ErrorCode... codes) {
        assertThatThrownBy(call)
                .as(what)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        refusal -> assertThat(refusal.code()).as(what).isIn((Object[]) codes));
    }

    /// Whether a submit is refused with, or a transfer fails with, one of these codes.
    final void failsWith(BackendSubmit submit, String what, ErrorCode... codes) {
        Transfer transfer;
        try {
            transfer = submit.submit();
        } catch (KvFerryException e) {
            assertThat(e.code()).as(what).isIn((Object[]) codes);
            return;
        }
        var outcome = end(transfer);
        assertThat(outcome)
                .as(what)
                .isInstanceOfSatisfying(
                        TransferOutcome.Failed.class,
                        failed ->
                                assertThat(failed.failure().code())
                                        .as(what)
                                        .isIn((Object[]) codes));
    }

    @FunctionalInterface
    interface BackendSubmit {
        Transfer submit();
    }
}
