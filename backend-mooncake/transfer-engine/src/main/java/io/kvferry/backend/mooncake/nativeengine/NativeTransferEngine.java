// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.RemoteSegment;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.recovery.SharedClosing;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Function;

/// The transfer engine over `libtransfer_engine` and its C API.
///
/// What the library is known for and what follows from it: it ends the process on some malformed
/// input from peers, so use it among trusted ones only; it installs signal handlers in
/// `enableGracefulShutdown`, which is never called; a failed task has no reason; a peer has no
/// incarnation.
///
/// Threading: as [TransferEngine]. Submitting may block inside the library and runs on threads of
/// its own, one thread polls for completion.
public final class NativeTransferEngine implements TransferEngine {
    /// For messages and for `kvferry doctor`.
    public static final String HOW_TO_GET =
            "Build Mooncake with -DBUILD_SHARED_LIBS=ON and name libtransfer_engine.so in the option 'library' or in "
                    + NativeConfig.LIBRARY_VARIABLE
                    + "; Mooncake's Python wheels do not contain it";

    private static final Logger LOG = LoggerFactory.getLogger(NativeTransferEngine.class);

    private static final long NOTIFICATION_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    private final NativeConfig config;
    private final TeLibrary library;
    private final MemorySegment handle;
    private final EngineInfo info;
    private final Batches batches;
    private final Map<String, Integer> segments = new ConcurrentHashMap<>();
    private final Set<Registration> registrations = ConcurrentHashMap.newKeySet();
    private final NativeInbox inbox;
    private final AtomicBoolean closed = new AtomicBoolean();
    private final SharedClosing closing = new SharedClosing();

    /// Held for reading around calls into the library, for writing around its end.
    private final ReentrantReadWriteLock using = new ReentrantReadWriteLock();

    private NativeTransferEngine(NativeConfig config, TeLibrary library, MemorySegment handle) {
        this.config = config;
        this.library = library;
        this.handle = handle;
        String address = library.localIpAndPort(handle);
        int colon = address.lastIndexOf(':');
        boolean p2p = config.metadata().equals("P2PHANDSHAKE");
        this.info =
                new EngineInfo(
                        p2p ? address : config.name(),
                        address.substring(0, Math.max(0, colon)),
                        Integer.parseInt(address.substring(colon + 1)),
                        "native",
                        config.protocol(),
                        "",
                        false);
        this.inbox = new NativeInbox(library, handle);
        this.batches = new Batches(this, library, handle, config);
    }

    /// Loads the library and opens an engine with exactly one transport.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when the library or the transport is
    ///   missing
    public static NativeTransferEngine start(NativeConfig config) {
        TeLibrary library = TeLibrary.load(config.library());
        try (Arena strings = Arena.ofConfined()) {
            MemorySegment handle =
                    library.create(
                            strings.allocateFrom(config.metadata()),
                            strings.allocateFrom(config.name()),
                            strings.allocateFrom(config.host()),
                            0);
            if (handle.address() == 0) {
                throw new KvFerryException(
                        ErrorCode.UNAVAILABLE,
                        "createTransferEngine(%s, %s, %s) failed; the library's log on stderr says why"
                                .formatted(config.metadata(), config.name(), config.host()));
            }
            MemorySegment transport =
                    library.installTransport(
                            handle,
                            strings.allocateFrom(config.protocol()),
                            transportArguments(config, strings));
            if (transport.address() == 0) {
                library.destroy(handle);
                throw new KvFerryException(
                        ErrorCode.UNAVAILABLE,
                        "installTransport(%s) failed: this build or this machine has no %s%s"
                                .formatted(config.protocol(), config.protocol(), " device"));
            }
            return new NativeTransferEngine(config, library, handle);
        }
    }

    /// RDMA wants an array of one string: which devices serve which memory.
    private static MemorySegment transportArguments(NativeConfig config, Arena strings) {
        if (config.devices().isEmpty()) {
            return MemorySegment.NULL;
        }
        String devices = "\"" + config.devices().replace(",", "\",\"") + "\"";
        MemorySegment matrix = strings.allocateFrom("{\"cpu:0\": [[" + devices + "], []]}");
        MemorySegment arguments = strings.allocate(ValueLayout.ADDRESS, 2);
        arguments.setAtIndex(ValueLayout.ADDRESS, 0, matrix);
        return arguments;
    }

    @Override
    public EngineInfo info() {
        return info;
    }

    @Override
    public RegisteredMemory register(MemorySegment memory, Access access) {
        requireOpen();
        if (access != Access.OPEN) {
            throw noGrants();
        }
        if (!memory.isNative() || memory.byteSize() == 0 || memory.isReadOnly()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "only a non-empty, writable segment outside the Java heap can be registered, not "
                            + memory);
        }
        enter();
        try (Arena strings = Arena.ofConfined()) {
            int rc = library.register(handle, memory, strings.allocateFrom("*"));
            if (rc != 0) {
                throw new KvFerryException(
                        rc == -7 || rc == -1 ? ErrorCode.INVALID_REQUEST : ErrorCode.NO_MEMORY,
                        "registerLocalMemory(0x%x, %d) returned %d%s"
                                .formatted(
                                        memory.address(),
                                        memory.byteSize(),
                                        rc,
                                        rc == -7 ? ": overlaps a registered region" : ""));
            }
        } finally {
            leave();
        }
        var registration = new Registration(memory, () -> {});
        registrations.add(registration);
        return registration;
    }

    /// Private memory: Mooncake's library shares none.
    @Override
    public RegisteredMemory allocate(long bytes, Access access, Arena arena) {
        return register(arena.allocate(bytes, 4096), access);
    }

    @Override
    public RegisteredMemory allocate(long bytes) {
        requireOpen();
        Arena pages = Arena.ofShared();
        boolean done = false;
        try {
            MemorySegment memory = pages.allocate(bytes, 4096);
            register(memory);
            registrations.removeIf(plain -> plain.memory().equals(memory));
            var registration = new Registration(memory, pages::close);
            registrations.add(registration);
            done = true;
            return registration;
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, "cannot allocate " + bytes + " bytes", e);
        } finally {
            if (!done) {
                pages.close();
            }
        }
    }

    /// One registration with the library.
    private final class Registration implements RegisteredMemory {
        private final MemorySegment memory;
        private final Runnable release;
        private final SharedClosing closing = new SharedClosing();

        Registration(MemorySegment memory, Runnable release) {
            this.memory = memory;
            this.release = release;
        }

        @Override
        public MemorySegment memory() {
            return memory;
        }

        @Override
        public boolean shared() {
            return false;
        }

        @Override
        public void close() {
            closing.run(this::end);
        }

        private void end() {
            // The library does not stop who is still in the memory, so wait for our own transfers.
            if (!batches.awaitIdle(Deadline.in(config.closeTimeout()))) {
                throw stillWorking("memory 0x" + Long.toHexString(memory.address()));
            }
            using.readLock().lock();
            int rc;
            try {
                rc = library.unregister(handle, memory);
            } finally {
                leave();
            }
            if (rc != 0) {
                LOG.warn(
                        "unregisterLocalMemory(0x{}) returned {}",
                        Long.toHexString(memory.address()),
                        rc);
            }
            registrations.remove(this);
            release.run();
        }
    }

    private static KvFerryException stillWorking(String what) {
        return new KvFerryException(
                ErrorCode.TIMEOUT,
                what + " stays: the library still works on transfers; do not reuse the memory");
    }

    @Override
    public RemoteSegment open(String name, Deadline deadline) {
        requireOpen();
        var _ = segment(name, false);
        return new RemoteSegment(name, "", config.protocol(), 0, false, List.of());
    }

    /// The library's id of a peer's segment.
    ///
    /// @param fresh after a failure, to see a peer that started anew
    int segment(String name, boolean fresh) {
        Integer known = fresh ? null : segments.get(name);
        if (known != null) {
            return known;
        }
        try (Arena strings = Arena.ofConfined()) {
            int id = library.openSegment(handle, strings.allocateFrom(name), fresh);
            if (id < 0) {
                throw new KvFerryException(
                        ErrorCode.PEER_LOST,
                        "openSegment(" + name + ") returned " + id + "; is the peer running?");
            }
            segments.put(name, id);
            return id;
        }
    }

    void forgetSegment(String name) {
        segments.remove(name);
    }

    @Override
    public <T> T submit(EngineRequest request, Function<? super EngineTransfer, T> follow) {
        return batches.submit(request, follow);
    }

    @Override
    public EngineOutcome transfer(EngineRequest request) {
        requireOpen();
        return submit(request).outcome().toCompletableFuture().join();
    }

    @Override
    public void send(String segmentName, Notification notification, Deadline deadline) {
        enter();
        try (Arena strings = Arena.ofConfined()) {
            MemorySegment message = strings.allocate(TeLibrary.NOTIFY);
            message.set(ValueLayout.ADDRESS, 0, strings.allocateFrom(notification.name()));
            message.set(ValueLayout.ADDRESS, 8, strings.allocateFrom(notification.message()));
            int rc = library.sendNotification(handle, segment(segmentName, false), message);
            if (rc != 0) {
                throw new KvFerryException(
                        ErrorCode.PEER_LOST,
                        "genNotifyInEngine(" + segmentName + ") returned " + rc);
            }
        } finally {
            leave();
        }
    }

    @Override
    public List<Notification> takeNotifications(int max) {
        enter();
        try {
            return inbox.take(max);
        } finally {
            leave();
        }
    }

    @Override
    public List<Notification> awaitNotifications(int max, Deadline deadline) {
        while (true) {
            List<Notification> taken = takeNotifications(max);
            if (!taken.isEmpty() || deadline.passed() || Thread.currentThread().isInterrupted()) {
                return taken;
            }
            // The library has no event to wait for.
            LockSupport.parkNanos(
                    Math.min(NOTIFICATION_PAUSE_NANOS, Math.max(1, deadline.remainingNanos())));
        }
    }

    @Override
    public WriteGrant grant(Extents extents, WriteGrant.Writers writers) {
        throw noGrants();
    }

    private static KvFerryException noGrants() {
        return new KvFerryException(
                ErrorCode.UNSUPPORTED,
                "Mooncake's library knows no write capabilities; engine=java has them");
    }

    /// Enters the library; the caller leaves it with [#leave].
    private void enter() {
        using.readLock().lock();
        if (closed.get()) {
            using.readLock().unlock();
            requireOpen();
        }
    }

    private void leave() {
        using.readLock().unlock();
    }

    private void requireOpen() {
        if (closed.get()) {
            throw new KvFerryException(
                    ErrorCode.CLOSED, "transfer engine " + info.segmentName() + " is closed");
        }
    }

    /// Destroys the library's engine, unless it still works on a transfer: destroying it then is
    /// undefined.
    @Override
    public void close() {
        closed.set(true);
        closing.run(this::end);
    }

    private void end() {
        if (!batches.close()) {
            throw stillWorking("the library's engine " + info.segmentName());
        }
        for (Registration registration : List.copyOf(registrations)) {
            registration.close();
        }
        using.writeLock().lock();
        try {
            library.destroy(handle);
        } finally {
            using.writeLock().unlock();
        }
    }
}
