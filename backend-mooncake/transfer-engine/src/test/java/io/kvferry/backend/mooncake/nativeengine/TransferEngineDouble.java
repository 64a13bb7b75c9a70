// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.toolkit.natives.CompiledLibrary;

import java.nio.file.Path;

/// The C double of `libtransfer_engine`, see `transfer_engine_double.c`.
public final class TransferEngineDouble {
    private TransferEngineDouble() {}

    /// Compiles it; skips the test where there is no gcc.
    public static Path compile() {
        return CompiledLibrary.compile(TransferEngineDouble.class, "transfer_engine_double.c");
    }
}
