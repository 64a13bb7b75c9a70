// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.CurveKeys;

import java.nio.file.Path;
import java.util.Optional;

/// The fleet's secret as the processes of a store use it.
public final class StoreSecret {
    private StoreSecret() {}

    /// @param file with the secret; empty for the one of the environment, if any
    public static Optional<FleetSecret> of(Optional<Path> file) {
        return file.map(FleetSecret::read).or(FleetSecret::configured);
    }

    /// The keys of all that know the secret.
    public static Optional<CurveKeys> keys(Optional<FleetSecret> secret) {
        return secret.map(known -> CurveKeys.shared(known.keyFor("mooncake store")));
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when other hosts could reach a port of the
    ///   store without a secret
    public static void requireToListen(
            String host, Optional<FleetSecret> secret, boolean insecure) {
        if (secret.isEmpty() && !insecure && !RemoteStoreConfig.isLoopback(host)) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "everybody who reaches "
                            + host
                            + " could read and write the store: set "
                            + FleetSecret.SETTING
                            + ", or say insecure where everybody on the network is trusted");
        }
    }
}
