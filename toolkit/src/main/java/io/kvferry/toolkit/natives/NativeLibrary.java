// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.natives;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Optional;

/// A C library of another project, loaded at run time. It stays loaded until the JVM ends, because
/// its threads do.
///
/// Threading: any thread.
@SuppressWarnings("restricted") // links libraries, for the types that know their functions
public final class NativeLibrary {
    private final Linker linker = Linker.nativeLinker();
    private final String file;
    private final String product;
    private final String howToGet;
    private final SymbolLookup symbols;

    private NativeLibrary(String file, String product, String howToGet, SymbolLookup symbols) {
        this.file = file;
        this.product = product;
        this.howToGet = howToGet;
        this.symbols = symbols;
    }

    /// @param file a path, or the name of a file that the linker searches for
    /// @param product what it should be, such as `NCCL 2.18 or newer`; for messages
    /// @param howToGet what a user does who does not have it; ends every message
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason and how to get the library
    public static NativeLibrary load(String file, String product, String howToGet) {
        try {
            var symbols =
                    file.indexOf('/') < 0
                            ? SymbolLookup.libraryLookup(file, Arena.global())
                            : SymbolLookup.libraryLookup(Path.of(file), Arena.global());
            return new NativeLibrary(file, product, howToGet, symbols);
        } catch (IllegalArgumentException e) {
            throw unavailable("cannot load " + file + " (" + e.getMessage() + "): " + howToGet, e);
        } catch (IllegalCallerException e) {
            throw unavailable(
                    "native access is off; start the JVM with --enable-native-access=ALL-UNNAMED",
                    e);
        }
    }

    private static KvFerryException unavailable(String why, RuntimeException cause) {
        return new KvFerryException(ErrorCode.UNAVAILABLE, why, cause);
    }

    /// Where it was loaded from, as the linker was told.
    public String file() {
        return file;
    }

    /// A function that every release has.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when it is not there
    public MethodHandle require(String function, MemoryLayout result, MemoryLayout... arguments) {
        return require(function, FunctionDescriptor.of(result, arguments));
    }

    /// A function that every release has.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when it is not there
    public MethodHandle require(String function, FunctionDescriptor shape) {
        return find(function, shape)
                .orElseThrow(() ->
                        new KvFerryException(
                                ErrorCode.UNAVAILABLE,
                                file
                                        + " has no function "
                                        + function
                                        + ", so it is not "
                                        + product
                                        + ": "
                                        + howToGet));
    }

    /// A function that some releases lack.
    public Optional<MethodHandle> find(String function, FunctionDescriptor shape) {
        return symbols.find(function).map(address -> linker.downcallHandle(address, shape));
    }
}
