// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.file;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.recovery.SharedClosing;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// Host memory to and from ranges of files, within one agent.
///
/// Threading: CONCURRENT. Each transfer runs on one thread of the pool; a deadline thread ends
/// those that hang.
public final class FileBackend implements TransferBackend {
    /// What the pages of every common file system are aligned to, and what O_DIRECT asks for.
    private static final int DIRECT_ALIGNMENT = 4096;

    private static final int MAX_DESCRIPTORS = 1 << 20;
    private static final long MAX_BYTES = 1L << 42;
    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(10);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    /// A descriptor costs a system call and, on a disk, about this; a byte 1/1.5 GB/s (JDK 25 on
    /// ext4, 1 MiB blocks).
    private static final long DESCRIPTOR_NANOS = 50_000;

    private static final Logger LOG = LoggerFactory.getLogger(FileBackend.class);

    private static final double NANOS_PER_BYTE = 1 / 1.5;

    private final BackendCapabilities capabilities;
    private final boolean direct;
    private final int queueLimit;
    private final Duration closeLimit;
    private final List<Registered> registrations = new CopyOnWriteArrayList<>();
    private final Set<FileTransfer> active = ConcurrentHashMap.newKeySet();
    private final AtomicLong ids = new AtomicLong();
    private final ThreadPoolExecutor threads;
    private final Thread watch;
    private final SharedClosing closing = new SharedClosing();
    private volatile boolean closed;

    /// @param direct open files with O_DIRECT
    /// @param threadCount transfers at a time
    /// @param queueLimit transfers that may wait
    public FileBackend(String agent, boolean direct, int threadCount, int queueLimit) {
        this(
                agent,
                direct,
                threadCount,
                queueLimit,
                Thread.ofPlatform().daemon().name("file-" + agent + "-", 0).factory(),
                CLOSE_LIMIT);
    }

    /// For tests that choose the threads.
    ///
    /// @param closeLimit how long [#close] waits for transfers to quiesce
    FileBackend(
            String agent,
            boolean direct,
            int threadCount,
            int queueLimit,
            ThreadFactory threadFactory,
            Duration closeLimit) {
        this.capabilities = capabilities(direct);
        this.direct = direct;
        this.queueLimit = queueLimit;
        this.closeLimit = closeLimit;
        this.threads =
                new ThreadPoolExecutor(
                        threadCount,
                        threadCount,
                        0,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(queueLimit),
                        threadFactory);
        this.watch =
                Thread.ofPlatform()
                        .daemon()
                        .name("file-deadlines-" + agent)
                        .start(new LastingLoop(this::watch));
    }

    /// What a backend with this setting can do.
    public static BackendCapabilities capabilities(boolean direct) {
        return new BackendCapabilities(
                Set.of(
                        new Route(
                                Operation.READ,
                                MemoryKind.HOST,
                                MemoryKind.FILE,
                                Route.Scope.LOOPBACK),
                        new Route(
                                Operation.WRITE,
                                MemoryKind.HOST,
                                MemoryKind.FILE,
                                Route.Scope.LOOPBACK)),
                EnumSet.of(
                        BackendCapabilities.Feature.CANCEL,
                        BackendCapabilities.Feature.PER_DESCRIPTOR_RESULTS,
                        BackendCapabilities.Feature.APPLIED_ON_COMPLETION,
                        BackendCapabilities.Feature.QUERY),
                BackendCapabilities.Threading.CONCURRENT,
                MAX_DESCRIPTORS,
                MAX_BYTES,
                direct ? DIRECT_ALIGNMENT : 1);
    }

    private void watch() {
        while (!closed) {
            LockSupport.parkNanos(this, TICK_NANOS);
            Thread.interrupted(); // left by a callback: parking would no longer wait
            try {
                active.forEach(this::watch);
            } catch (RuntimeException | Error e) { // want of memory must not end the deadlines
                LoopReport.WARN.log(LOG, "transfers were not looked after", e);
            }
        }
    }

    /// Watches the deadline of a transfer; one that ends while still queued is removed from the
    /// queue.
    private void watch(FileTransfer transfer) {
        if (!transfer.watch() && transfer.isQueued() && threads.remove(transfer)) {
            transfer.refuse();
        }
    }

    @Override
    public BackendCapabilities capabilities() {
        return capabilities;
    }

    @Override
    public Registration register(MemoryRange memory) {
        checkOpen();
        Registered registered =
                switch (memory) {
                    case MemoryRange.Host host -> Registered.host(host, registrations::remove);
                    case MemoryRange.FileRange file ->
                            Registered.file(
                                    file, ids.incrementAndGet(), direct, registrations::remove);
                    case MemoryRange.Device _,
                            MemoryRange.ObjectRange _,
                            MemoryRange.VolumeRange _ ->
                            throw new KvFerryException(
                                    ErrorCode.UNSUPPORTED,
                                    "FILE moves host memory and files, not " + memory.kind());
                };
        registrations.add(registered);
        return registered;
    }

    @Override
    public byte[] localMetadata() {
        return new byte[0];
    }

    @Override
    public void loadPeer(PeerId peer, byte[] section) {
        throw new KvFerryException(
                ErrorCode.UNSUPPORTED, "FILE has no peers; it works within one agent");
    }

    @Override
    public void dropPeer(PeerId peer) {
        checkOpen(); // every peer is unknown here, and unknown ones are ignored
    }

    @Override
    public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
        checkOpen();
        if (peer.isPresent()) {
            throw new KvFerryException(ErrorCode.NOT_FOUND, "FILE knows no peer " + peer.get());
        }
        var covers = new ArrayList<Registered>(descriptors.count());
        Optional<Registered> last = Optional.empty();
        for (int i = 0; i < descriptors.count(); i++) {
            last = covering(descriptors, i, last);
            covers.add(last.orElseThrow());
        }
        return new FilePrepared(this, descriptors, covers);
    }

    /// The registration of descriptor `index`; most lists stay within one, so the last hit is tried
    /// first.
    private Optional<Registered> covering(
            DescriptorList list, int index, Optional<Registered> last) {
        long device = list.device(index);
        long address = list.address(index);
        long length = list.length(index);
        if (last.isPresent() && last.get().covers(device, address, length)) {
            return last;
        }
        for (Registered candidate : registrations) {
            if (candidate.memory().kind() == list.kind()
                    && candidate.covers(device, address, length)) {
                return Optional.of(candidate);
            }
        }
        throw new KvFerryException(
                ErrorCode.NOT_FOUND,
                "descriptor "
                        + index
                        + " ("
                        + list.kind()
                        + " "
                        + device
                        + ", address "
                        + address
                        + ", "
                        + length
                        + " bytes) lies in no registered region");
    }

    @Override
    public Transfer submit(TransferRequest request) {
        checkOpen();
        FilePrepared host = mine(request.local());
        FilePrepared file = mine(request.remote());
        check(request, host, file);
        var transfer =
                new FileTransfer(
                        ids.incrementAndGet(), request, host, file, () -> closed, active::remove);
        active.add(transfer);
        try {
            threads.execute(transfer);
        } catch (OutOfMemoryError e) {
            active.remove(transfer);
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, "no memory for the thread of a transfer", e);
        } catch (RejectedExecutionException _) {
            active.remove(transfer);
            checkOpen();
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    queueLimit + " transfers are queued already (option \"queue\")");
        }
        return transfer;
    }

    private FilePrepared mine(Prepared prepared) {
        if (prepared instanceof FilePrepared known && known.owner() == this) {
            return known;
        }
        throw new KvFerryException(
                ErrorCode.INVALID_REQUEST, "the list was prepared by another backend");
    }

    private void check(TransferRequest request, FilePrepared host, FilePrepared file) {
        DescriptorList local = host.descriptors();
        DescriptorList remote = file.descriptors();
        if (local.kind() != MemoryKind.HOST || remote.kind() != MemoryKind.FILE) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "FILE moves between HOST (local) and FILE (remote), not "
                            + local.kind()
                            + " and "
                            + remote.kind());
        }
        if (request.notification().isPresent()) {
            throw new KvFerryException(ErrorCode.UNSUPPORTED, "FILE has nobody to notify");
        }
        if (local.count() != remote.count()
                || local.count() > MAX_DESCRIPTORS
                || local.bytes() > MAX_BYTES) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    local.count()
                            + " local and "
                            + remote.count()
                            + " remote ranges of "
                            + local.bytes()
                            + " bytes; at most "
                            + MAX_DESCRIPTORS
                            + " of "
                            + MAX_BYTES);
        }
        int mask = capabilities.alignment() - 1;
        for (int i = 0; i < local.count(); i++) {
            if (local.length(i) != remote.length(i)) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "descriptor "
                                + i
                                + ": "
                                + local.length(i)
                                + " bytes here, "
                                + remote.length(i)
                                + " there");
            }
            if (host.covers().get(i).isClosed() || file.covers().get(i).isClosed()) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND, "descriptor " + i + ": its registration was closed");
            }
            if (request.operation() == Operation.WRITE && !file.covers().get(i).isWritable()) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "descriptor " + i + ": the file was registered for reading only");
            }
            long position = file.covers().get(i).position(remote.address(i));
            if (((local.address(i) | position | local.length(i)) & mask) != 0) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "descriptor "
                                + i
                                + ": address, file position and"
                                + " length must be multiples of "
                                + capabilities.alignment()
                                + " for direct I/O");
            }
        }
    }

    @Override
    public Optional<Long> estimateNanos(
            Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
        return peer.isPresent()
                ? Optional.empty()
                : Optional.of(
                        (long) (descriptors * (double) DESCRIPTOR_NANOS + bytes * NANOS_PER_BYTE));
    }

    @Override
    public Optional<Map<String, String>> query(MemoryRange range) {
        if (!(range instanceof MemoryRange.FileRange file)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "FILE answers for files only, not " + range.kind());
        }
        try {
            var found = Files.readAttributes(file.path(), BasicFileAttributes.class);
            return Optional.of(
                    Map.of(
                            "size", Long.toString(found.size()),
                            "mtime", Long.toString(found.lastModifiedTime().toMillis())));
        } catch (NoSuchFileException _) {
            return Optional.empty();
        } catch (IOException e) {
            throw FileTrouble.exception("cannot look at " + file.path(), e);
        }
    }

    /// For tests: transfers that have not quiesced.
    int inFlight() {
        return active.size();
    }

    private void checkOpen() {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "the FILE backend is closed");
        }
    }

    /// When this returns, all transfers have quiesced, for every concurrent caller. Fails with
    /// TIMEOUT, and keeps the registrations, while a hanging system call may still touch memory.
    @Override
    public void close() {
        closing.run(this::end);
    }

    private void end() {
        closed = true;
        var queued = new ArrayList<Runnable>();
        threads.getQueue().drainTo(queued);
        queued.forEach(task -> ((FileTransfer) task).refuse());
        threads.shutdown(); // no interrupt: it would close the channel under a transfer
        active.forEach(FileTransfer::abort);
        LockSupport.unpark(watch);
        var limit = Deadline.in(closeLimit);
        if (!Uninterrupted.awaitTermination(threads, limit.remaining())) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    active.size()
                            + " transfers still use memory "
                            + closeLimit
                            + " after they were ended; close again before it is freed");
        }
        Uninterrupted.join(watch, limit.remaining());
        registrations.forEach(Registered::close);
    }
}
