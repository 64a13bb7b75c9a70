// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.spi.ec.EcItem;

/// An item that the model's encoder is to encode in a step.
public record EncodeTask(EcItem item, EncoderInput input) {}
