// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.natives;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.invoke.MethodHandle;

/// Functions of the C library that the JVM itself runs on, for callers that do without where one
/// cannot be had.
///
/// Threading: any thread.
public final class CLibrary {
    private static final Logger LOG = LoggerFactory.getLogger(CLibrary.class);
    private static final boolean LINUX = System.getProperty("os.name").equals("Linux");

    private CLibrary() {}

    /// Null where the library lacks the function, or native access is denied.
    @SuppressWarnings("restricted") // for the types that know the functions
    public static @Nullable MethodHandle find(
            String name, FunctionDescriptor shape, Linker.Option... options) {
        try {
            Linker linker = Linker.nativeLinker();
            return linker.defaultLookup()
                    .find(name)
                    .map(address -> linker.downcallHandle(address, shape, options))
                    .orElse(null);
        } catch (UnsupportedOperationException | IllegalCallerException e) {
            LOG.debug("{} is not to be had: {}", name, e.toString());
            return null;
        }
    }

    /// As [#find], and null where this is not Linux, whose flags the caller knows. The function
    /// leaves errno in memory that comes before its own arguments.
    public static @Nullable MethodHandle findOnLinux(
            String name, FunctionDescriptor shape, Linker.Option... options) {
        if (!LINUX) {
            return null;
        }
        var all = new Linker.Option[options.length + 1];
        all[0] = Linker.Option.captureCallState("errno");
        System.arraycopy(options, 0, all, 1, options.length);
        return find(name, shape, all);
    }
}
