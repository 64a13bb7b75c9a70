// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/// `kv_transfer_params`: what travels with a request over HTTP. Values are JSON's: String, Boolean,
/// Long, Double, List, Map; null values are dropped (absent and null mean the same).
///
/// Getters refuse a value of another shape with INVALID_REQUEST: params come from clients.
public record TransferParams(Map<String, Object> values) {
    public static final TransferParams EMPTY = new TransferParams(Map.of());

    public TransferParams {
        var copy = new LinkedHashMap<String, Object>();
        values.forEach((key, value) -> {
            if (value != null) {
                copy.put(key, checked(key, value));
            }
        });
        values = Collections.unmodifiableMap(copy);
    }

    private static Object checked(String key, Object value) {
        return switch (value) {
            case String _, Boolean _, Long _, Double _ -> value;
            case Integer number -> number.longValue();
            case List<?> list -> {
                var copy = new ArrayList<Object>(list.size());
                for (Object item : list) {
                    copy.add(
                            checked(
                                    key,
                                    Objects.requireNonNull(
                                            item, () -> "param " + key + ": null in a list")));
                }
                yield Collections.unmodifiableList(copy);
            }
            case Map<?, ?> map -> {
                var copy = new LinkedHashMap<String, Object>();
                map.forEach((name, item) -> {
                    if (item != null) {
                        copy.put(String.valueOf(name), checked(key + "." + name, item));
                    }
                });
                yield Collections.unmodifiableMap(copy);
            }
            default ->
                    throw new IllegalArgumentException(
                            "param "
                                    + key
                                    + ": "
                                    + value.getClass().getName()
                                    + " is not a JSON value");
        };
    }

    /// A flag; absent is false.
    public boolean flag(String key) {
        return get(key, Boolean.class).orElse(false);
    }

    public Optional<String> string(String key) {
        return get(key, String.class);
    }

    public Optional<Long> integer(String key) {
        return get(key, Long.class);
    }

    public Optional<List<?>> list(String key) {
        return get(key, List.class).map(list -> (List<?>) list);
    }

    private <T> Optional<T> get(String key, Class<T> type) {
        var value = values.get(key);
        if (value == null) {
            return Optional.empty();
        }
        if (!type.isInstance(value)) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "kv_transfer_params."
                            + key
                            + ": expected "
                            + type.getSimpleName()
                            + ", got "
                            + value);
        }
        return Optional.of(type.cast(value));
    }
}
