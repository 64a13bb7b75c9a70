// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.P2pPlan.Peer;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.RequestAddresses;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferParams;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;
import java.util.UUID;

/// What a request is to do with another engine.
sealed interface HandOver {
    /// Nothing.
    ///
    /// @param trouble why not, where the request asks for something
    record None(String trouble) implements HandOver {}

    /// Its prompt is computed here, for a decoder.
    ///
    /// @param decoder where it is to be pushed; no address where that is not known
    record Send(String transfer, Peer decoder) implements HandOver {}

    /// Its prompt was computed elsewhere.
    record Receive(String transfer, Peer prefiller) implements HandOver {}

    /// Reads the transfer parameters of requests, and writes those of the decoder's request.
    ///
    /// On a prefiller: `do_remote_decode`, and if known `transfer_id` and `decode_addrs` (one
    /// address for each rank) or `decode_addr` (that of rank 0; rank k listens on the k-th port
    /// after it). On a decoder: `do_remote_prefill`, `transfer_id`, `prefill_addrs` or
    /// `prefill_addr`, and `prefill_epoch` and `kvferry_namespace` as the prefiller returned them.
    /// Without the two flags the hand-over is taken from the request id, in the form of vLLM's
    /// proxy, with the position of the prompt in its call.
    ///
    /// With protocol 0 it is always taken from the request id, and the transfer has the name that
    /// vLLM's engines give the request.
    final class Reader {
        private static final String NAMESPACE = "kvferry_namespace";
        private static final String EPOCH = "prefill_epoch";

        private final SchedulerContext context;
        private final P2pSettings settings;
        private final KvRole role;
        private final String namespace;
        private List<String> addresses = List.of();

        Reader(SchedulerContext context, P2pSettings settings) {
            this.context = context;
            this.settings = settings;
            this.role = context.config().role();
            this.namespace = HexFormat.of().formatHex(context.engine().namespace().contentDigest());
        }

        /// Where the ranks of this engine listen.
        void listeningAt(List<String> ranks) {
            addresses = List.copyOf(ranks);
        }

        HandOver read(RequestView request) {
            try {
                var params = request.params();
                boolean sends = params.flag("do_remote_decode");
                boolean receives = params.flag("do_remote_prefill");
                if (sends && receives) {
                    return new None("do_remote_decode and do_remote_prefill exclude each other");
                }
                if (settings.vllm()) {
                    var byId = byId(request);
                    return (sends || receives) && byId.equals(new None(""))
                            ? new None("protocol 0 goes by request ids of the form of vLLM's proxy")
                            : byId;
                }
                if (!sends && !receives) {
                    return byId(request);
                }
                if (sends ? !role.produces() : !role.consumes()) {
                    return new None("this engine's role is " + role);
                }
                return sends ? send(params) : receive(params);
            } catch (KvFerryException e) {
                return new None(String.valueOf(e.getMessage()));
            }
        }

        private HandOver byId(RequestView request) {
            var found =
                    RequestAddresses.parse(request.externalId())
                            .or(() -> RequestAddresses.parse(request.id()));
            if (found.isEmpty()) {
                return new None("");
            }
            var ids = found.get();
            boolean sends =
                    role == KvRole.PRODUCER
                            || role == KvRole.BOTH && addresses.contains(ids.prefill().toString());
            boolean receives =
                    role == KvRole.CONSUMER
                            || role == KvRole.BOTH && addresses.contains(ids.decode().toString());
            if (sends == receives) {
                return new None("the request id names neither side as this engine");
            }
            var transfer = ids.transferId();
            int prompt = request.promptIndex();
            if (settings.vllm()) {
                boolean external = RequestAddresses.parse(request.externalId()).isPresent();
                var id = external ? request.externalId() : request.id();
                transfer = settings.vllmRequestId(id, prompt);
            } else if (prompt > 0) {
                transfer += "-" + prompt;
            }
            return sends
                    ? new Send(transfer, single(ids.decode()))
                    : new Receive(transfer, single(ids.prefill()));
        }

        private static Peer single(PeerAddress rankZero) {
            return new Peer(List.of(rankZero.toString()), PeerMessage.ANY_EPOCH);
        }

        private HandOver send(TransferParams params) {
            var transfer = params.string("transfer_id").orElseGet(() -> "p2p-" + UUID.randomUUID());
            var decoder = peer(params, "decode_addr", PeerMessage.ANY_EPOCH);
            return new Send(transfer, decoder.orElse(new Peer(List.of(), PeerMessage.ANY_EPOCH)));
        }

        private HandOver receive(TransferParams params) {
            var transfer = params.string("transfer_id");
            long epoch = params.string(EPOCH).flatMap(Reader::epoch).orElse(PeerMessage.ANY_EPOCH);
            var prefiller = peer(params, "prefill_addr", epoch);
            if (transfer.isEmpty() || prefiller.isEmpty()) {
                return new None(
                        "do_remote_prefill needs transfer_id and prefill_addrs of as many ranks as"
                                + " this engine has, got "
                                + params.values().keySet());
            }
            if (!params.string(NAMESPACE).orElse(namespace).equals(namespace)) {
                return new None(
                        "the prefiller computes other KV: model, runner, dtype or block size differ");
            }
            return new Receive(transfer.get(), prefiller.get());
        }

        private static Optional<Long> epoch(String hex) {
            try {
                return Optional.of(Long.parseUnsignedLong(hex, 16));
            } catch (NumberFormatException e) {
                return Optional.empty();
            }
        }

        /// The addresses under `name` and `s`, else the one under `name`.
        private Optional<Peer> peer(TransferParams params, String name, long epoch) {
            var list = params.list(name + "s");
            if (list.isEmpty()) {
                return params.string(name)
                        .flatMap(PeerAddress::parse)
                        .map(address -> new Peer(List.of(address.toString()), epoch));
            }
            var found = new ArrayList<String>();
            for (Object entry : list.get()) {
                if (entry instanceof String text) {
                    PeerAddress.parse(text).ifPresent(address -> found.add(address.toString()));
                }
            }
            return found.size() == context.engine().worldSize()
                    ? Optional.of(new Peer(found, epoch))
                    : Optional.empty();
        }

        /// What a router that works in sequence sends the decoder.
        TransferParams answer(Send send, Peer self) {
            if (self.addresses().isEmpty()) {
                return TransferParams.EMPTY;
            }
            var values = new LinkedHashMap<String, Object>();
            values.put("do_remote_prefill", true);
            values.put("do_remote_decode", false);
            values.put("transfer_id", send.transfer());
            values.put("remote_engine_id", context.config().engineId());
            values.put("prefill_addrs", self.addresses());
            values.put(EPOCH, Long.toHexString(self.epoch()));
            values.put(NAMESPACE, namespace);
            return new TransferParams(values);
        }
    }
}
