// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import java.util.regex.Pattern;

/// Decides whether a caller may set `kv_transfer_params` and `ec_transfer_params`, which name the
/// hosts that an engine fetches KV from, and release holds. Requests signed with the fleet's secret
/// may, and listed peers; without a secret and a list, processes of this host.
///
/// Threading: immutable; any thread.
public final class TransferTrust {
    /// Headers that a signature covers too, because they have effects: a request id may name
    /// engines, a hold is released by its token, and a leg is run once.
    private static final List<String> SIGNED =
            List.of("X-Request-Id", HeldRequests.HEADER, TakenLegs.HEADER);

    private final Optional<FleetSecret> secret;
    private final List<Peer> peers;

    private TransferTrust(Optional<FleetSecret> secret, List<Peer> peers) {
        this.secret = secret;
        this.peers = peers;
    }

    /// @param peers addresses, or networks as `10.1.0.0/16`
    /// @throws KvFerryException BAD_CONFIG when a peer is neither
    public static TransferTrust of(Optional<FleetSecret> secret, List<String> peers) {
        boolean byDefault = secret.isEmpty() && peers.isEmpty();
        var listed = byDefault ? List.of("127.0.0.0/8", "::1") : peers;
        return new TransferTrust(secret, listed.stream().map(Peer::parse).toList());
    }

    /// @throws HttpProblem 403, naming `what`, when the caller is not trusted
    void check(HttpCall call, String what) {
        if (!covers(call)) {
            throw HttpProblem.of(
                    403,
                    "untrusted",
                    what
                            + " is taken from the router only: let both read one secret file ("
                            + FleetSecret.SETTING
                            + "), or list the router's address in --trusted-peers");
        }
    }

    /// Whether a request id names engines to exchange KV with, as the ids of vLLM's P2pNccl proxy
    /// do: it has the same effect as `kv_transfer_params`.
    static boolean namesEngines(String requestId) {
        return requestId.contains("___prefill_addr_") || requestId.contains("___decode_addr_");
    }

    /// A client's request id as a router may pass it on: it names no engines.
    public static String withoutEngines(String requestId) {
        return namesEngines(requestId) ? requestId.replace("___", "_") : requestId;
    }

    /// Whether the caller is trusted.
    boolean covers(HttpCall call) {
        return peers.stream().anyMatch(peer -> peer.contains(call.remoteAddress()))
                || secret.isPresent() && isSigned(call, secret.get());
    }

    private static boolean isSigned(HttpCall call, FleetSecret secret) {
        return call.header(HttpSignature.HEADER)
                .filter(value ->
                        HttpSignature.verifies(
                                secret,
                                value,
                                call.method(),
                                call.target(),
                                call.body(),
                                signedValues(call::header)))
                .isPresent();
    }

    private static String[] signedValues(Function<String, Optional<String>> headers) {
        return SIGNED.stream().map(name -> headers.apply(name).orElse("")).toArray(String[]::new);
    }

    /// The value of [HttpSignature#HEADER] for a POST that is to be trusted.
    ///
    /// @param path path and query as they are sent
    /// @param headers the request's headers, by name
    public static String sign(
            FleetSecret secret,
            String path,
            byte[] body,
            Function<String, Optional<String>> headers) {
        return HttpSignature.sign(secret, "POST", path, body, signedValues(headers));
    }

    /// One address or network.
    @SuppressWarnings("ArrayRecordComponent") // never changed
    private record Peer(byte[] network, int bits) {
        /// Host names are refused: a name server must not decide who is trusted.
        private static final Pattern ADDRESS =
                Pattern.compile("[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*");

        static Peer parse(String text) {
            int slash = text.indexOf('/');
            var address = slash < 0 ? text : text.substring(0, slash);
            try {
                if (!ADDRESS.matcher(address).matches()) {
                    throw bad(text);
                }
                var network = InetAddress.getByName(address).getAddress();
                int bits =
                        slash < 0
                                ? 8 * network.length
                                : Integer.parseInt(text, slash + 1, text.length(), 10);
                if (bits < 0 || bits > 8 * network.length) {
                    throw bad(text);
                }
                return new Peer(network, bits);
            } catch (UnknownHostException | NumberFormatException e) {
                throw bad(text);
            }
        }

        private static KvFerryException bad(String text) {
            return new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--trusted-peers: "
                            + text
                            + " is neither an address nor a network such as 10.1.0.0/16");
        }

        boolean contains(InetAddress address) {
            var bytes = address.getAddress();
            if (bytes.length != network.length) {
                return false;
            }
            for (int i = 0; i < bits; i++) {
                if (((bytes[i / 8] ^ network[i / 8]) >> (7 - i % 8) & 1) != 0) {
                    return false;
                }
            }
            return true;
        }
    }
}
