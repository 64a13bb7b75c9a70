// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/// Memory of the C library, which `-XX:MaxDirectMemorySize` does not bound; whoever uses it has a
/// bound of their own. Freed by the collector.
public final class UncountedMemory {
    private static final @Nullable MethodHandle MALLOC =
            CLibrary.find("malloc", FunctionDescriptor.of(ADDRESS, JAVA_LONG));
    private static final @Nullable MethodHandle FREE =
            CLibrary.find("free", FunctionDescriptor.ofVoid(ADDRESS));

    private UncountedMemory() {}

    /// Uninitialised memory; ordinary direct memory where native access is denied.
    ///
    /// @throws OutOfMemoryError when there is none
    @SuppressWarnings("restricted") // gives what malloc returned its size
    public static MemorySegment allocate(long bytes) {
        if (MALLOC == null || FREE == null) {
            return Arena.ofAuto().allocate(bytes);
        }
        MemorySegment memory = malloc(MALLOC, bytes);
        if (memory.address() == 0) {
            throw new OutOfMemoryError("malloc of " + bytes + " bytes failed");
        }
        return memory.reinterpret(bytes, Arena.ofAuto(), UncountedMemory::free);
    }

    private static MemorySegment malloc(MethodHandle handle, long bytes) {
        try {
            return (MemorySegment) handle.invokeExact(bytes);
        } catch (Throwable e) {
            throw new AssertionError("malloc does not throw", e);
        }
    }

    private static void free(MemorySegment memory) {
        try {
            if (FREE != null) {
                FREE.invokeExact(memory);
            }
        } catch (Throwable e) {
            throw new AssertionError("free does not throw", e);
        }
    }
}
