// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

/// A host and a port, in Mooncake's spelling: `host:port`, `[v6]:port`, and port 12001 where none
/// is given.
public record HostPort(String host, int port) {
    /// Mooncake's MC_HANDSHAKE_PORT.
    static final int DEFAULT_PORT = 12_001;

    public static HostPort parse(String text) {
        String host = text;
        String port = "";
        int bracket = text.indexOf(']');
        if (text.startsWith("[") && bracket > 0) {
            host = text.substring(1, bracket);
            String rest = text.substring(bracket + 1);
            if (!rest.isEmpty() && !rest.startsWith(":")) {
                throw bad(text);
            }
            port = rest.isEmpty() ? "" : rest.substring(1);
        } else if (text.indexOf(':') == text.lastIndexOf(':') && text.indexOf(':') >= 0) {
            host = text.substring(0, text.indexOf(':'));
            port = text.substring(text.indexOf(':') + 1);
        }
        if (host.isEmpty()) {
            throw bad(text);
        }
        return new HostPort(host, port.isEmpty() ? DEFAULT_PORT : portNumber(port, text));
    }

    private static int portNumber(String port, String text) {
        try {
            int number = Integer.parseInt(port);
            if (number > 0 && number < 65_536) {
                return number;
            }
        } catch (NumberFormatException e) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "'" + text + "' is not host:port", e);
        }
        throw bad(text);
    }

    private static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, "'" + text + "' is not host:port");
    }

    @Override
    public String toString() {
        return (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }
}
