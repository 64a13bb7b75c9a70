// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.backend.nccl.plane.PlaneRuns;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.natives.CompiledLibrary;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/// The C double of NCCL and of a GPU's driver, see `native/nccl_double.c`. One for the JVM; its
/// knobs and counts are all tests' together.
@SuppressWarnings("restricted") // links the double
public final class NcclDouble {
    private static @Nullable NcclDouble loaded;

    /// What it does wrong, or slowly; 0 is off.
    public enum Knob {
        /// Queries until a communicator may be ready.
        INIT_POLLS,
        /// Queries until a group is launched.
        GROUP_POLLS,
        HANG_INIT,
        FAIL_INIT,
        /// The how-manieth group fails from now on.
        FAIL_GROUP,
        /// No operation ends.
        STALL,
        /// Most microseconds before each task of a stream.
        DELAY_US,
        /// The how-manieth operation brings a wrong bit.
        FLIP,
        VERSION,
        /// Which groups [#FAIL_GROUP] counts: 1 + the rank, 0 for both ranks'.
        FAIL_RANK,
        /// The how-manieth end of a group returns only when its communicator is aborted.
        HANG_GROUP,
        /// The ranks of new communicators may be in two processes.
        ACROSS
    }

    public enum Count {
        LIVE_COMMS,
        LIVE_BYTES,
        LIVE_STREAMS,
        MISUSES,
        GROUPS,
        SENDS,
        RECEIVES,
        ABORTS,
        DESTROYS,
        IDS,
        INITS,
        LARGEST_GROUP
    }

    private final SymbolLookup symbols;
    private final NcclLibrary library;
    private final Path file;
    private final MethodHandle set;
    private final MethodHandle count;
    private final MethodHandle misuse;
    private final MethodHandle reset;
    private final MethodHandle allocate;
    private final MethodHandle free;
    private final MethodHandle openStream;
    private final MethodHandle closeStream;
    private final MethodHandle copy;
    private final MethodHandle mark;
    private final MethodHandle reached;

    private NcclDouble(Path file) {
        this.file = file;
        symbols = SymbolLookup.libraryLookup(file, Arena.global());
        library = NcclLibrary.load(file);
        set = find("double_set", FunctionDescriptor.ofVoid(JAVA_INT, JAVA_LONG));
        count = find("double_count", FunctionDescriptor.of(JAVA_LONG, JAVA_INT));
        misuse =
                find(
                        "double_misuse",
                        FunctionDescriptor.of(
                                ADDRESS.withTargetLayout(
                                        MemoryLayout.sequenceLayout(256, JAVA_BYTE))));
        reset = find("double_reset", FunctionDescriptor.ofVoid());
        allocate = find("double_allocate", FunctionDescriptor.of(JAVA_LONG, JAVA_LONG));
        free = find("double_free", FunctionDescriptor.ofVoid(JAVA_LONG));
        openStream = find("double_stream", FunctionDescriptor.of(JAVA_LONG));
        closeStream = find("double_close_stream", FunctionDescriptor.ofVoid(JAVA_LONG));
        copy =
                find(
                        "double_copy",
                        FunctionDescriptor.ofVoid(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
        mark = find("double_mark", FunctionDescriptor.ofVoid(JAVA_LONG));
        reached = find("double_reached", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
    }

    private MethodHandle find(String name, FunctionDescriptor shape) {
        return Linker.nativeLinker().downcallHandle(symbols.find(name).orElseThrow(), shape);
    }

    /// Compiles and loads it; skips the test where there is no gcc.
    public static synchronized NcclDouble load() {
        var known = loaded;
        if (known == null) {
            known =
                    new NcclDouble(
                            CompiledLibrary.compile(NcclDouble.class, "/native/nccl_double.c"));
            loaded = known;
        }
        return known;
    }

    /// Loads one that another process has compiled.
    public static synchronized NcclDouble load(Path compiled) {
        var known = loaded;
        if (known == null) {
            known = new NcclDouble(compiled);
            loaded = known;
        }
        return known;
    }

    public NcclLibrary library() {
        return library;
    }

    public Path file() {
        return file;
    }

    public void set(Knob knob, long value) {
        call(set, knob.ordinal(), value);
    }

    public long count(Count what) {
        return (long) call(count, what.ordinal());
    }

    /// The first thing that real NCCL would have answered with a hang or worse; empty when there
    /// was none.
    public String misuse() {
        return ((MemorySegment) call(misuse)).getString(0);
    }

    /// Nothing was called as it must not be, and soon nothing of the device is in use any more:
    /// what a link had is freed by a thread of its own.
    public void assertClean() {
        assertThat(misuse()).isEmpty();
        var limit = Deadline.in(PlaneRuns.SOON);
        while (count(Count.LIVE_COMMS) + count(Count.LIVE_STREAMS) + count(Count.LIVE_BYTES) > 0) {
            assertThat(limit.passed()).as("communicators, streams or memory stay").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// All knobs off, all counts but the live ones 0.
    public void reset() {
        call(reset);
    }

    private static Object call(MethodHandle what, Object... arguments) {
        try {
            return what.invokeWithArguments(arguments);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /// A GPU of its own.
    public GpuDriver driver() {
        return new Driver();
    }

    private final class Driver implements GpuDriver {
        @Override
        public String name() {
            return "double";
        }

        @Override
        public void bind() {}

        @Override
        public Buffer allocate(long bytes) {
            var arena = Arena.ofShared();
            var host = arena.allocate(bytes, 64);
            long device = (long) call(allocate, bytes);
            return new Buffer() {
                @Override
                public MemorySegment host() {
                    return host;
                }

                @Override
                public long device() {
                    return device;
                }

                @Override
                public void close() {
                    call(free, device);
                    arena.close(); // throws while anything reads or writes it
                }
            };
        }

        @Override
        public Stream openStream() {
            long stream = (long) call(openStream);
            return new Stream() {
                @Override
                public long handle() {
                    return stream;
                }

                @Override
                public void upload(Buffer buffer, long bytes) {
                    call(copy, stream, buffer.device(), buffer.host().address(), bytes);
                }

                @Override
                public void download(Buffer buffer, long bytes) {
                    call(copy, stream, buffer.host().address(), buffer.device(), bytes);
                }

                @Override
                public void mark() {
                    call(mark, stream);
                }

                @Override
                public boolean reached() {
                    return (int) call(reached, stream) != 0;
                }

                @Override
                public void close() {
                    call(closeStream, stream);
                }
            };
        }

        @Override
        public void close() {}
    }
}
