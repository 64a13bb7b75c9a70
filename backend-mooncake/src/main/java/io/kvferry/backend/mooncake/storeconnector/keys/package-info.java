// SPDX-License-Identifier: Apache-2.0
/// How the blocks of requests are named in the store: kvferry's form and vLLM's.
@NullMarked
package io.kvferry.backend.mooncake.storeconnector.keys;

import org.jspecify.annotations.NullMarked;
