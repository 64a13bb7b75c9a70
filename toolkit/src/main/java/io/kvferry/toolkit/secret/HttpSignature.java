// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.secret;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import java.util.regex.Pattern;

/// Proves in one header that an HTTP request comes from a holder of the fleet's secret and was not
/// changed on its way: `X-Kvferry-Signature: <unix ms>.<nonce>.<tag>`, the tag over method, path
/// with query, time, nonce, body and, where both sides agree on some, the values of headers.
///
/// A signature is good for [#MAX_AGE] to either side of the receiver's clock. Somebody who reads
/// the network can send the same request once more within that time; TLS prevents it.
///
/// Threading: any thread.
public final class HttpSignature {
    /// Name of the header.
    public static final String HEADER = "X-Kvferry-Signature";

    /// How far the clocks of two hosts may be apart.
    public static final Duration MAX_AGE = Duration.ofMinutes(5);

    private static final String PURPOSE = "http request";
    private static final Pattern FORM =
            Pattern.compile("([0-9]{1,15})\\.([0-9a-f]{32})\\.([0-9a-f]{64})");
    private static final SecureRandom RANDOM = new SecureRandom();

    private HttpSignature() {}

    /// The header's value for a request.
    ///
    /// @param path path and query as they are sent
    /// @param body empty for a request without one
    /// @param headers values of headers that the signature covers too, in an order that both sides
    ///   know; empty for one that is absent
    public static String sign(
            FleetSecret secret, String method, String path, byte[] body, String... headers) {
        return sign(secret, method, path, body, System.currentTimeMillis(), headers);
    }

    static String sign(
            FleetSecret secret,
            String method,
            String path,
            byte[] body,
            long unixMillis,
            String... headers) {
        var nonce = new byte[16];
        RANDOM.nextBytes(nonce);
        var time = Long.toString(unixMillis);
        var hex = HexFormat.of();
        var tag =
                secret.tag(PURPOSE, parts(method, path, body, time, hex.formatHex(nonce), headers));
        return time + "." + hex.formatHex(nonce) + "." + hex.formatHex(tag);
    }

    /// Whether `value` is a signature of this request, made within [#MAX_AGE].
    ///
    /// @param headers as it was signed with
    public static boolean verifies(
            FleetSecret secret,
            String value,
            String method,
            String path,
            byte[] body,
            String... headers) {
        var parts = FORM.matcher(value);
        if (!parts.matches()) {
            return false;
        }
        long age = System.currentTimeMillis() - Long.parseLong(parts.group(1));
        return Math.abs(age) <= MAX_AGE.toMillis()
                && secret.verifies(
                        HexFormat.of().parseHex(parts.group(3)),
                        PURPOSE,
                        parts(method, path, body, parts.group(1), parts.group(2), headers));
    }

    private static byte[][] parts(
            String method, String path, byte[] body, String time, String nonce, String... headers) {
        var parts = new byte[5 + headers.length][];
        parts[0] = FleetSecret.utf8(method);
        parts[1] = FleetSecret.utf8(path);
        parts[2] = FleetSecret.utf8(time);
        parts[3] = FleetSecret.utf8(nonce);
        parts[4] = body;
        for (int i = 0; i < headers.length; i++) {
            parts[5 + i] = FleetSecret.utf8(headers[i]);
        }
        return parts;
    }
}
