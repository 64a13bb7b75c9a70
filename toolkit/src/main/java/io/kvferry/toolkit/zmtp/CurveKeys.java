// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import java.util.Objects;
import java.util.Set;

/// CURVE keys of a side channel, each in Z85 (40 characters). With them every connection is
/// encrypted, a decoder talks only to the holder of `serverKey`, and a prefiller only to `clients`.
///
/// @param publicKey this engine's
/// @param secretKey this engine's
/// @param serverKey public key of the prefillers that a decoder asks
/// @param clients public keys that a prefiller serves
public record CurveKeys(String publicKey, String secretKey, String serverKey, Set<String> clients) {
    private static final int Z85_LENGTH = 40;

    public CurveKeys {
        clients = Set.copyOf(clients);
        check("curve_public_key", publicKey);
        check("curve_secret_key", secretKey);
        check("curve_server_key", serverKey);
        clients.forEach(client -> check("curve_client_keys", client));
    }

    /// Keys that every holder of a secret has, and nobody else.
    ///
    /// @param key 32 bytes made from the secret
    public static CurveKeys shared(byte[] key) {
        var own = Z85.encode(CurveSession.publicKey(key));
        return new CurveKeys(own, Z85.encode(key), own, Set.of(own));
    }

    private static void check(String option, String key) {
        Objects.requireNonNull(key, option);
        // The text of the key stays out of the message: one of them is secret.
        try {
            if (key.length() == Z85_LENGTH && Z85.decode(key).length == 32) {
                return;
            }
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(noKey(option), e);
        }
        throw new IllegalArgumentException(noKey(option));
    }

    private static String noKey(String option) {
        return option + " is no Z85 key of " + Z85_LENGTH + " characters";
    }

    boolean serves(byte[] clientKey) {
        return clients.contains(Z85.encode(clientKey));
    }

    /// Without the secret.
    @Override
    public String toString() {
        return "CurveKeys[" + publicKey + "]";
    }
}
