// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.invoke.MethodHandle;

/// The functions of libc on files, for [PosixFileCalls]. Each takes memory of [#STATE] before its
/// own arguments, in which it leaves errno.
final class Libc {
    private static final Linker LINKER = Linker.nativeLinker();

    static final MemoryLayout STATE = Linker.Option.captureStateLayout();

    static final MethodHandle OPEN =
            link(
                    "open",
                    FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT),
                    Linker.Option.firstVariadicArg(2));
    static final MethodHandle PREAD =
            link(
                    "pread",
                    FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG));
    static final MethodHandle PWRITE =
            link(
                    "pwrite",
                    FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG));
    // struct iovec of a 64-bit system is two longs, as FileCalls.gather passes them.
    static final MethodHandle PWRITEV =
            link(
                    "pwritev",
                    FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT, JAVA_LONG));
    // Added to musl in 2024.
    static final @Nullable MethodHandle PREADV2 =
            LINKER.defaultLookup()
                    .find("preadv2")
                    .map(_ ->
                            link(
                                    "preadv2",
                                    FunctionDescriptor.of(
                                            JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT, JAVA_LONG,
                                            JAVA_INT)))
                    .orElse(null);
    static final MethodHandle FALLOCATE =
            link(
                    "fallocate",
                    FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG));
    static final MethodHandle FDATASYNC =
            link("fdatasync", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    static final MethodHandle FSYNC = link("fsync", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    static final MethodHandle CLOSE =
            linkWithoutErrno("close", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    static final MethodHandle RENAMEAT2 =
            link(
                    "renameat2",
                    FunctionDescriptor.of(
                            JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT, ADDRESS, JAVA_INT));
    static final MethodHandle LINK =
            link("link", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    static final MethodHandle UNLINK = link("unlink", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    static final MethodHandle STATX =
            link(
                    "statx",
                    FunctionDescriptor.of(
                            JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT, ADDRESS));
    static final MethodHandle UTIMENSAT =
            link(
                    "utimensat",
                    FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
    static final MethodHandle FUTIMENS =
            link("futimens", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
    static final MethodHandle FLOCK =
            link("flock", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    // Not every libc has getdents64 and cachestat under their names.
    static final MethodHandle GETDENTS64 =
            link(
                    "syscall",
                    FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG),
                    Linker.Option.firstVariadicArg(1));
    static final MethodHandle CACHESTAT =
            link(
                    "syscall",
                    FunctionDescriptor.of(
                            JAVA_LONG, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT),
                    Linker.Option.firstVariadicArg(1));
    static final MethodHandle MKDIR =
            link("mkdir", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));

    private Libc() {}

    private static MethodHandle link(
            String name, FunctionDescriptor shape, Linker.Option... options) {
        var all = new Linker.Option[options.length + 1];
        all[0] = Linker.Option.captureCallState("errno");
        System.arraycopy(options, 0, all, 1, options.length);
        return linkWithoutErrno(name, shape, all);
    }

    @SuppressWarnings("restricted") // links these functions and no other
    private static MethodHandle linkWithoutErrno(
            String name, FunctionDescriptor shape, Linker.Option... options) {
        return LINKER.downcallHandle(LINKER.defaultLookup().findOrThrow(name), shape, options);
    }
}
