// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.file;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.disk.DirectOption;
import io.kvferry.toolkit.files.FileTrouble;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Optional;
import java.util.function.Consumer;

/// Memory or a range of a file that transfers may name. Addresses of a file range count from its
/// start.
///
/// Threading: any thread.
final class Registered implements Registration {
    private static final Logger LOG = LoggerFactory.getLogger(Registered.class);

    private final MemoryRange memory;
    private final long device;
    private final Optional<FileChannel> channel;
    private final Consumer<Registered> whenClosed;
    private volatile boolean closed;
    private int users;

    private Registered(
            MemoryRange memory,
            long device,
            Optional<FileChannel> channel,
            Consumer<Registered> whenClosed) {
        this.memory = memory;
        this.device = device;
        this.channel = channel;
        this.whenClosed = whenClosed;
    }

    static Registered host(MemoryRange.Host range, Consumer<Registered> whenClosed) {
        return new Registered(range, 0, Optional.empty(), whenClosed);
    }

    /// Opens the file; a writable one is made if absent.
    ///
    /// @throws KvFerryException [ErrorCode#MISS] when there is no such file,
    ///   [ErrorCode#UNAVAILABLE] when it does not take O_DIRECT, [ErrorCode#STORAGE_IO]
    static Registered file(
            MemoryRange.FileRange range,
            long device,
            boolean direct,
            Consumer<Registered> whenClosed) {
        var options = new HashSet<OpenOption>();
        options.add(StandardOpenOption.READ);
        if (range.writable()) {
            options.add(StandardOpenOption.WRITE);
            options.add(StandardOpenOption.CREATE);
        }
        if (direct) {
            options.add(
                    DirectOption.find()
                            .orElseThrow(() ->
                                    new KvFerryException(
                                            ErrorCode.UNAVAILABLE,
                                            "this Java runtime has no direct file I/O; set option direct to false")));
        }
        try {
            return new Registered(
                    range,
                    device,
                    Optional.of(FileChannel.open(range.path(), options)),
                    whenClosed);
        } catch (NoSuchFileException e) {
            throw new KvFerryException(ErrorCode.MISS, "no file " + range.path(), e);
        } catch (UnsupportedOperationException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE, range.path() + " does not take O_DIRECT", e);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot open " + range.path(), e);
        }
    }

    @Override
    public MemoryRange memory() {
        return memory;
    }

    @Override
    public long device() {
        return device;
    }

    @Override
    public long address() {
        return memory instanceof MemoryRange.Host(MemorySegment segment) ? segment.address() : 0;
    }

    boolean covers(long onDevice, long at, long length) {
        long offset = at - address();
        return !closed
                && onDevice == device
                && offset >= 0
                && length <= memory.length()
                && offset <= memory.length() - length;
    }

    boolean isClosed() {
        return closed;
    }

    boolean isWritable() {
        return !(memory instanceof MemoryRange.FileRange range) || range.writable();
    }

    /// Bytes of host memory at a native address.
    MemorySegment slice(long at, long length) {
        return memory.hostSegment().asSlice(at - address(), length);
    }

    FileChannel channel() {
        return channel.orElseThrow();
    }

    /// Position in the file of an address within the range.
    long position(long at) {
        return memory instanceof MemoryRange.FileRange range ? range.offset() + at : at;
    }

    /// A transfer is about to use the channel, until [#leave]; false when this is closed.
    synchronized boolean enter() {
        if (closed) {
            return false;
        }
        users++;
        return true;
    }

    void leave() {
        if (leaves()) {
            try {
                closeChannel();
            } catch (KvFerryException e) { // who closed this has left
                LoopReport.WARN.log(LOG, "a file of a closed registration", e);
            }
        }
    }

    private synchronized boolean leaves() {
        users--;
        return closed && users == 0;
    }

    /// Does not wait: closing a channel waits for the system calls on it, which may hang. The last
    /// transfer that uses the channel closes it.
    @Override
    public void close() {
        boolean unused;
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            unused = users == 0;
        }
        whenClosed.accept(this);
        if (unused) {
            closeChannel();
        }
    }

    private void closeChannel() {
        if (channel.isPresent()) {
            try {
                channel.get().close();
            } catch (IOException e) {
                throw FileTrouble.exception("cannot close " + memory, e);
            }
        }
    }
}
