// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedPeer;
import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.CrossMemory;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Memory that is not the engine's, between processes of this host.
@SuppressWarnings("NullAway.Init")
class CrossMemoryTest {
    private static final long BYTES = 32 << 20;
    private static final byte OWN = 0x5a;

    /// A copier that the system does not let run is awaited for as long as it takes.
    private static final String PATIENT = "drain-timeout-ms=60000";

    /// Killed processes leave their files behind.
    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private JavaTransferEngine here;

    private JavaTransferEngine start(String... more) {
        var settings = new java.util.HashMap<>(Map.of("shared-memory-dir", folder.toString()));
        for (String setting : more) {
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }
        here = JavaTransferEngine.start(EngineConfig.from(settings));
        return here;
    }

    @AfterEach
    void close() {
        if (here != null) {
            here.close();
        }
        arena.close();
    }

    private EngineProcess child(long bytes, String... more) throws IOException {
        return child(List.of(), bytes, more);
    }

    private EngineProcess child(List<String> under, long bytes, String... more) throws IOException {
        var settings = new java.util.ArrayList<>(List.of(more));
        settings.add("bytes=" + bytes);
        settings.add("registered=true");
        settings.add("shared-memory-dir=" + folder);
        return new EngineProcess(under, settings.toArray(String[]::new));
    }

    private RegisteredMemory registered(long bytes) {
        return here.register(arena.allocate(bytes, 4096));
    }

    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(60));
    }

    private static ErrorCode codeOf(EngineOutcome outcome) {
        return switch (outcome) {
            case Completed done -> throw new AssertionError("completed: " + done);
            case Failed failed -> failed.failure().code();
        };
    }

    private static Completed done(long bytes, String path) {
        return new Completed(bytes, Guarantee.APPLIED, path);
    }

    @Test
    void bytesArriveInBothDirections() throws Exception {
        start();
        try (var peer = child(BYTES)) {
            CrossMemorySupport.assumePermitted(peer);
            RegisteredMemory near = registered(BYTES);
            var whole = Ranges.of(near.address(), peer.address, BYTES);
            Bytes.fill(near.memory(), 1);
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, whole, soon())))
                    .isEqualTo(done(BYTES, "cma"));
            assertThat(peer.ask("mismatch 1")).isEqualTo("-1");

            peer.ask("fill 2");
            assertThat(here.transfer(EngineRequest.read(peer.segmentName, whole, soon())))
                    .isEqualTo(done(BYTES, "cma"));
            assertThat(Bytes.mismatch(near.memory(), 0, BYTES, 2)).isEqualTo(-1);
        }
    }

    /// Written this way, read back through the socket by an engine that has no other.
    @Test
    void manyRangesGoWhereTheyBelong() throws Exception {
        start();
        try (var peer = child(BYTES);
                var over =
                        JavaTransferEngine.start(
                                EngineConfig.from(Map.of("shared-memory", "false")))) {
            CrossMemorySupport.assumePermitted(peer);
            RegisteredMemory near = registered(BYTES);
            Bytes.fill(near.memory(), 3);
            RegisteredMemory back = over.allocate(BYTES);
            int blocks = 8000;
            long blockBytes = BYTES / blocks;
            int[] order = new Random(42).ints(0, blocks).distinct().limit(blocks).toArray();
            var ranges = new Ranges(blocks);
            for (int i = 0; i < blocks; i++) {
                ranges.add(
                        near.address() + i * blockBytes,
                        peer.address + order[i] * blockBytes,
                        blockBytes - i % 7);
            }
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, ranges, soon())))
                    .isEqualTo(done(ranges.totalBytes(), "cma"));
            assertThat(
                            over.transfer(
                                    EngineRequest.read(
                                            peer.segmentName,
                                            Ranges.of(back.address(), peer.address, BYTES),
                                            soon())))
                    .isEqualTo(done(BYTES, "tcp"));
            for (int i = 0; i < blocks; i++) {
                long length = blockBytes - i % 7;
                MemorySegment arrived = back.memory().asSlice(order[i] * blockBytes, blockBytes);
                assertThat(
                                arrived.asSlice(0, length)
                                        .mismatch(near.memory().asSlice(i * blockBytes, length)))
                        .as("block %d", i)
                        .isEqualTo(-1);
                assertThat(arrived.asSlice(length).mismatch(arena.allocate(blockBytes - length)))
                        .as("gap after block %d", i)
                        .isEqualTo(-1);
            }
        }
    }

    @Test
    @Tag("soak")
    void copiesMoreThan2GiBAsOneRange() throws Exception {
        start();
        long bytes = (2L << 30) + (96 << 20) + 13;
        Path file = Path.of("/dev/shm", "kvferry-test-" + System.nanoTime());
        try (var peer = child(bytes);
                var channel =
                        FileChannel.open(
                                file,
                                StandardOpenOption.CREATE_NEW,
                                StandardOpenOption.READ,
                                StandardOpenOption.WRITE,
                                StandardOpenOption.DELETE_ON_CLOSE)) {
            CrossMemorySupport.assumePermitted(peer);
            RegisteredMemory near =
                    here.register(channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena));
            for (long at = 0; at + 8 <= bytes; at += 4096) {
                near.memory().set(ValueLayout.JAVA_LONG_UNALIGNED, at, at);
            }
            near.memory().set(ValueLayout.JAVA_BYTE, bytes - 1, (byte) 9);
            var whole = Ranges.of(near.address(), peer.address, bytes);
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, whole, soon())))
                    .isEqualTo(done(bytes, "cma"));
            near.memory().fill((byte) 0);
            assertThat(here.transfer(EngineRequest.read(peer.segmentName, whole, soon())))
                    .isEqualTo(done(bytes, "cma"));
            for (long at = 0; at + 8 <= bytes; at += 4096) {
                assertThat(near.memory().get(ValueLayout.JAVA_LONG_UNALIGNED, at)).isEqualTo(at);
            }
            assertThat(near.memory().get(ValueLayout.JAVA_BYTE, bytes - 1)).isEqualTo((byte) 9);
            here.close();
        }
    }

    @Test
    void rangesOfBothKindsOfMemoryTravelTogether() throws Exception {
        start();
        // In one process, so that there are two kinds to name.
        CrossMemorySupport.assumeLinked();
        try (var there =
                JavaTransferEngine.start(
                        EngineConfig.from(Map.of("shared-memory-dir", folder.toString())))) {
            RegisteredMemory shared = there.allocate(1 << 16);
            RegisteredMemory own = there.register(arena.allocate(1 << 16));
            RegisteredMemory near = registered(1 << 17);
            Bytes.fill(near.memory(), 4);
            var ranges =
                    Ranges.of(near.address(), shared.address(), 1 << 16)
                            .add(near.address() + (1 << 16), own.address(), 1 << 16);
            assertThat(
                            here.transfer(
                                    EngineRequest.write(
                                            there.info().segmentName(), ranges, soon())))
                    .isEqualTo(done(1 << 17, "cma"));
            assertThat(shared.memory().mismatch(near.memory().asSlice(0, 1 << 16))).isEqualTo(-1);
            assertThat(own.memory().mismatch(near.memory().asSlice(1 << 16))).isEqualTo(-1);
        }
    }

    @Test
    void boundsAreThoseThatTheOwnerListed() throws Exception {
        start();
        try (var peer = child(1 << 16)) {
            CrossMemorySupport.assumePermitted(peer);
            RegisteredMemory near = registered(1 << 16);
            for (long address :
                    new long[] {peer.address - 1, peer.address + (1 << 16) - 15, 4096, -16}) {
                var ranges =
                        Ranges.of(near.address(), peer.address, 16)
                                .add(near.address(), address, 16);
                var outcome = here.transfer(EngineRequest.write(peer.segmentName, ranges, soon()));
                assertThat(codeOf(outcome)).isEqualTo(ErrorCode.PEER_REFUSED);
                assertThat(((Failed) outcome).range()).isEqualTo(1);
            }
        }
    }

    @Test
    void eitherEndCanTurnItOff() throws Exception {
        start();
        try (var peer = child(1 << 16, "cross-memory=false")) {
            var ranges = Ranges.of(registered(1 << 16).address(), peer.address, 1 << 16);
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, ranges, soon())))
                    .isEqualTo(done(1 << 16, "tcp"));
        }
        here.close();
        start("cross-memory=false");
        try (var peer = child(1 << 16)) {
            var ranges = Ranges.of(registered(1 << 16).address(), peer.address, 1 << 16);
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, ranges, soon())))
                    .isEqualTo(done(1 << 16, "tcp"));
        }
    }

    /// Where ptrace_scope is 1 the child may, being no ancestor, only because of this.
    @Test
    void anOwnerCanLetEveryProcessOfItsUserIn() throws Exception {
        start("cross-memory-ptracer=true", PATIENT);
        RegisteredMemory near = registered(BYTES);
        try (var peer = child(BYTES)) {
            hammer(peer, near);
        }
    }

    @Test
    void aProcessThatMayNotIsServedOverTcp() throws Exception {
        assumeTrue(
                Files.isExecutable(Path.of("/usr/bin/setpriv"))
                        && "root".equals(System.getProperty("user.name")),
                "taking a capability from a child needs root and setpriv");
        start();
        RegisteredMemory near = registered(1 << 16);
        var under = List.of("/usr/bin/setpriv", "--bounding-set=-sys_ptrace");
        try (var peer = child(under, 1 << 16)) {
            assumeTrue(
                    peer.ask("permitted %d %d", ProcessHandle.current().pid(), near.address())
                            .equals("false"),
                    "this kernel lets a process with fewer capabilities read one with more");
            peer.ask("fill 6");
            assertThat(
                            peer.ask(
                                    "write %s %d %d",
                                    here.info().segmentName(), near.address(), 1 << 16))
                    .isEqualTo("tcp");
            assertThat(Bytes.mismatch(near.memory(), 0, 1 << 16, 6)).isEqualTo(-1);
        }
    }

    @Test
    void aProcessOfAnotherPidNamespaceIsServedOverTcp() throws Exception {
        assumeTrue(
                Files.isExecutable(Path.of("/usr/bin/unshare"))
                        && "root".equals(System.getProperty("user.name")),
                "another pid namespace needs root and unshare");
        start();
        RegisteredMemory near = registered(1 << 16);
        var under = List.of("/usr/bin/unshare", "--pid", "--fork", "--kill-child");
        try (var peer = child(under, 1 << 16)) {
            assertThat(
                            peer.ask(
                                    "write %s %d %d",
                                    here.info().segmentName(), near.address(), 1 << 16))
                    .isEqualTo("tcp");
            var ranges = Ranges.of(near.address(), peer.address, 1 << 16);
            assertThat(here.transfer(EngineRequest.read(peer.segmentName, ranges, soon())))
                    .isEqualTo(done(1 << 16, "tcp"));
        }
    }

    @Test
    void aClosedCapabilityEndsTheWritesUnderIt() throws Exception {
        start();
        try (var peer = child(BYTES, PATIENT)) {
            CrossMemorySupport.assumePermitted(peer);
            RegisteredMemory near = registered(BYTES);
            long token = Long.parseLong(peer.ask("grant"));
            var write =
                    EngineRequest.write(
                                    peer.segmentName,
                                    Ranges.of(near.address(), peer.address, BYTES),
                                    soon())
                            .withCapability(token);
            assertThat(here.transfer(write)).isEqualTo(done(BYTES, "cma"));
            var last = new java.util.concurrent.CompletableFuture<EngineOutcome>();
            Thread.ofPlatform()
                    .start(() -> {
                        EngineOutcome outcome = here.transfer(write);
                        while (outcome instanceof Completed) {
                            outcome = here.transfer(write);
                        }
                        last.complete(outcome);
                    });
            assertThat(peer.ask("revoke")).isEqualTo("revoked");
            peer.ask("fill 8");
            assertThat(codeOf(last.get(60, TimeUnit.SECONDS))).isEqualTo(ErrorCode.LEASE_EXPIRED);
            assertThat(peer.ask("mismatch 8")).isEqualTo("-1");
        }
    }

    @Test
    void unregisteringShutsOutAPeerInTheMiddleOfACopy() throws Exception {
        start(PATIENT);
        try (var peer = child(BYTES)) {
            for (int round = 0; round < 10; round++) {
                RegisteredMemory near = registered(BYTES);
                hammer(peer, near);
                pause(round);
                near.close();
                near.memory().fill(OWN);
                assertThat(peer.hear()).isEqualTo("PEER_REFUSED");
                assertUntouched(near);
            }
        }
    }

    @Test
    void aKilledPeerDoesNotHoldUpTheOwner() throws Exception {
        start();
        for (int round = 0; round < 3; round++) {
            RegisteredMemory near = registered(BYTES);
            try (var peer = child(BYTES)) {
                hammer(peer, near);
                pause(round);
                peer.kill();
                near.close();
                near.memory().fill(OWN);
                assertUntouched(near);
            }
        }
    }

    private void hammer(EngineProcess peer, RegisteredMemory near) {
        assumeTrue(
                peer.ask("permitted %d %d", ProcessHandle.current().pid(), near.address())
                        .equals("true"),
                () -> "cross memory attach is not permitted here: " + CrossMemory.needs());
        assertThat(peer.ask("hammer %s %d %d", here.info().segmentName(), near.address(), BYTES))
                .isEqualTo("cma");
    }

    /// Lets the copies get somewhere.
    private static void pause(int round) {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(700L * (round + 1)));
    }

    private static void assertUntouched(RegisteredMemory memory) {
        var bytes = memory.memory();
        long size = bytes.byteSize();
        if (bytes.get(ValueLayout.JAVA_BYTE, 0) != OWN) {
            throw new AssertionError("byte 0 was written after unregistering");
        }
        long same = MemorySegment.mismatch(bytes, 0, size - 1, bytes, 1, size);
        if (same >= 0) {
            throw new AssertionError("byte " + (same + 1) + " was written after unregistering");
        }
    }

    /// A peer that was stopped between its announcement and its call cannot be told from one that
    /// copies.
    @Test
    @Tag("soak")
    void unregisteringFailsWhileALivingPeerDoesNotEndItsCall() throws IOException {
        start();
        RegisteredMemory memory = registered(1 << 16);
        var peer = SharedPeer.attach(folder, here.info().incarnation(), true).orElseThrow();
        int mark = peer.marks().enter();
        peer.marks().announce(mark);
        assertThatThrownBy(memory::close)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        peer.marks().exit(mark);
        peer.close();
    }

    /// Until that peer has ended its call, a close says so, however often.
    @Test
    void aCloseSucceedsWhenNobodyCopiesAnyMore() throws IOException {
        start("drain-timeout-ms=50");
        here.allocate(1 << 16, Access.OPEN, arena);
        var peer = SharedPeer.attach(folder, here.info().incarnation(), true).orElseThrow();
        int mark = peer.marks().enter();
        peer.marks().announce(mark);
        for (int i = 0; i < 3; i++) {
            assertThatThrownBy(here::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
            try (var files = Files.list(folder)) {
                assertThat(files).as("nobody comes any more").isEmpty();
            }
        }
        peer.marks().exit(mark);
        here.close();
        here.close();
        peer.close();
    }

    @Test
    void theNextStartOfAKilledOwnerIsSomebodyElse() throws Exception {
        start();
        RegisteredMemory near = registered(1 << 16);
        int port;
        String first;
        try (var peer = child(1 << 16)) {
            CrossMemorySupport.assumePermitted(peer);
            var ranges = Ranges.of(near.address(), peer.address, 1 << 16);
            assertThat(here.transfer(EngineRequest.write(peer.segmentName, ranges, soon())))
                    .isEqualTo(done(1 << 16, "cma"));
            first = here.open(peer.segmentName, soon()).incarnation();
            port = HostPort.parse(peer.segmentName).port();
            peer.kill();
            assertThat(codeOf(here.transfer(EngineRequest.write(peer.segmentName, ranges, soon()))))
                    .isEqualTo(ErrorCode.PEER_LOST);
        }
        try (var next = atPort(port)) {
            var ranges = Ranges.of(near.address(), next.address, 1 << 16);
            var write = EngineRequest.write(next.segmentName, ranges, soon());
            assertThat(codeOf(here.transfer(write.withIncarnation(first))))
                    .isEqualTo(ErrorCode.STALE_INCARNATION);
            assertThat(here.transfer(write)).isEqualTo(done(1 << 16, "cma"));
        }
    }

    /// The system may give the port to somebody else meanwhile, and the engine draws from a few.
    private EngineProcess atPort(int port) throws IOException {
        for (int tries = 0; tries < 20; tries++) {
            var peer = child(1 << 16, "min-port=" + port, "max-port=" + (port + 3));
            if (HostPort.parse(peer.segmentName).port() == port) {
                return peer;
            }
            peer.close();
        }
        assumeTrue(false, "somebody else took port " + port);
        throw new AssertionError();
    }
}
