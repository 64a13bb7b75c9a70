// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import org.zeromq.SocketType;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.net.NetworkInterface;
import java.net.SocketException;
import java.util.regex.Pattern;

/// A ZeroMQ address, `tcp://HOST:PORT`. The other transports of ZeroMQ are refused: its Java
/// library has a form of `ipc` of its own.
///
/// @param text as it was given; the host may be `*`, and so may the port of a socket that binds
public record ZmqAddress(String text) {
    private static final Pattern TCP = Pattern.compile("tcp://(\\[[^\\]]+\\]|[^:/]+):(\\*|[0-9]+)");

    /// @param what name of the setting, for the error message
    /// @throws KvFerryException BAD_CONFIG when the text is not an address
    public static ZmqAddress of(String what, String text) {
        var parts = TCP.matcher(text);
        boolean right =
                parts.matches()
                        && (parts.group(2).equals("*")
                                || parts.group(2).length() < 6
                                        && Integer.parseInt(parts.group(2), 10) < 65_536);
        if (!right) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    what + " must be an address such as tcp://10.0.0.7:5557, got " + text);
        }
        return new ZmqAddress(text);
    }

    private String host() {
        var parts = TCP.matcher(text);
        return parts.matches() ? parts.group(1) : "";
    }

    /// Whether a publisher binds the address: a wildcard, as in vLLM, or an address of this host.
    /// It connects to any other.
    boolean isBound() {
        if (host().equals("*") || text.endsWith(":*")) {
            return true;
        }
        try {
            var address = HostNames.SYSTEM.socketAddress(host(), 0).getAddress();
            return address != null
                    && (address.isAnyLocalAddress()
                            || NetworkInterface.getByInetAddress(address) != null);
        } catch (SocketException e) {
            return false; // a name that is not known yet may be known when it is connected to
        }
    }

    boolean isLoopback() {
        if (host().equals("*")) {
            return false;
        }
        var address = HostNames.SYSTEM.socketAddress(host(), 0).getAddress();
        return address != null && address.isLoopbackAddress();
    }

    /// Binds or connects a socket.
    ///
    /// @return what it is bound or connected to, with the port that was drawn
    /// @throws KvFerryException BAD_CONFIG when that fails
    String attach(ZMQ.Socket socket) {
        try {
            boolean attached = isBound() ? socket.bind(text) : socket.connect(text);
            if (attached) {
                return isBound() ? socket.getLastEndpoint() : text;
            }
        } catch (ZMQException | IllegalArgumentException e) {
            throw failed(socket.getSocketType(), String.valueOf(e.getMessage()));
        }
        throw failed(socket.getSocketType(), "refused");
    }

    private KvFerryException failed(SocketType type, String why) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "cannot open " + text + " for KV events (" + type + "): " + why);
    }

    @Override
    public String toString() {
        return text;
    }
}
