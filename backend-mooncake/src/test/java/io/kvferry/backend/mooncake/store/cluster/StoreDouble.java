// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static org.assertj.core.api.Assertions.assertThat;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

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
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// The C double of Mooncake's store, see `native/mooncake_store_double.c`. One cluster for the JVM.
@SuppressWarnings("restricted") // links the double
public final class StoreDouble {
    private static final Duration SOON = Duration.ofSeconds(55);
    private static @Nullable StoreDouble loaded;

    /// What it does wrong; in the order of the C file.
    public enum Knob {
        FAIL_SETUP,
        CLOCK_MS,
        HANG,
        FAIL_CALL,
        FAIL_ITEM,
        SHORT_READ,
        FLIP,
        OTHER_OBJECT,
        UNWRITTEN,
        HEALTH,
        CAPACITY
    }

    /// What it counts; in the order of the C file.
    public enum Count {
        HANDLES,
        REGISTERED,
        MISUSES,
        CALLS,
        OBJECTS,
        HANGING
    }

    private final Path file;
    private final MethodHandle set;
    private final MethodHandle count;
    private final MethodHandle misuse;
    private final MethodHandle preferred;
    private final MethodHandle damage;
    private final MethodHandle reset;

    private StoreDouble(Path file) {
        this.file = file;
        var symbols = SymbolLookup.libraryLookup(file, Arena.global());
        var text = ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(256, JAVA_BYTE));
        set = find(symbols, "double_set", FunctionDescriptor.ofVoid(JAVA_INT, JAVA_LONG));
        count = find(symbols, "double_count", FunctionDescriptor.of(JAVA_LONG, JAVA_INT));
        misuse = find(symbols, "double_misuse", FunctionDescriptor.of(text));
        preferred = find(symbols, "double_preferred", FunctionDescriptor.of(text));
        damage = find(symbols, "double_damage", FunctionDescriptor.of(JAVA_LONG));
        reset = find(symbols, "double_reset", FunctionDescriptor.ofVoid());
    }

    private static MethodHandle find(SymbolLookup symbols, String name, FunctionDescriptor shape) {
        return Linker.nativeLinker().downcallHandle(symbols.find(name).orElseThrow(), shape);
    }

    /// Compiles and loads it; skips the test where there is no gcc, or no libc headers.
    public static synchronized StoreDouble load() {
        var known = loaded;
        if (known == null) {
            known =
                    new StoreDouble(
                            CompiledLibrary.compile(
                                    StoreDouble.class, "/native/mooncake_store_double.c"));
            loaded = known;
        }
        return known;
    }

    public Path file() {
        return file;
    }

    /// A requester of the double's cluster, with limits that do not decide on a busy machine.
    public ClusterConfig config() {
        return ClusterConfig.requester("127.0.0.1:50051")
                .withLibrary(file)
                .withLimits(Duration.ofSeconds(50), Duration.ofSeconds(50));
    }

    public void set(Knob knob, long value) {
        call(set, knob.ordinal(), value);
    }

    public long count(Count what) {
        return (long) call(count, what.ordinal());
    }

    public void await(Count what, long value) {
        await(() -> count(what) == value, what + " is not " + value);
    }

    static void await(BooleanSupplier condition, String otherwise) {
        var limit = Deadline.in(SOON);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(otherwise).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// The first segment that the last put preferred.
    public String preferred() {
        return ((MemorySegment) call(preferred)).getString(0);
    }

    /// Damages all objects.
    public long damage() {
        return (long) call(damage);
    }

    /// Nothing was called as it must not be.
    public void assertClean() {
        assertThat(((MemorySegment) call(misuse)).getString(0)).isEmpty();
        assertThat(count(Count.MISUSES)).isZero();
    }

    /// All objects go, all knobs are off.
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
}
