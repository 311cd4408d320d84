"""The scattering transform of small images: wavelets and moduli, averaged; no parameter is learned.

Bruna and Mallat, "Invariant Scattering Convolution Networks" (2013). With Morlet wavelets ψ of J scales and L angles
and a Gaussian φ of width 2^J, an image x becomes

    x ⋆ φ,      |x ⋆ ψ_a| ⋆ φ,      ||x ⋆ ψ_a| ⋆ ψ_b| ⋆ φ      for b of a larger scale than a,

each read at every 2^J-th pixel: 1 + JL + L²J(J − 1)/2 channels. All convolutions are products of Fourier transforms, of
images that are continued by reflection, so that their borders make no edges.

A linear model under privacy learns more from channels of about equal size (Tramèr and Boneh, "Differentially Private
Learning Needs Better Features", 2021): with `groups`, neighbouring channels are taken together, and in every image
each group's numbers are shifted and scaled to mean 0 and variance 1.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # loads its modules on first use, as a silo's text columns need none of them
from numpy.typing import NDArray

from ringfence.errors import RecordsError

FloatImages = NDArray[np.float32]

FINEST_WIDTH, FINEST_FREQUENCY = 0.8, 0.75 * math.pi
"""A wavelet's width, in pixels, and its frequency, in radians per pixel, at the finest scale, as is usual."""

FLAT = 1e-5
"""Added to a group's deviation, which is 0 in an empty image."""

CHUNK = 256
"""Images that are transformed at once: about 30 MB of numbers for 28 × 28 pixels."""


@dataclass(frozen=True)
class Scattering:
    """The transform of square images with `side` pixels a side, which 2^scales divides.

    `groups` divides the channels; 0 leaves numbers as they are.
    """

    side: int = 28
    scales: int = 2
    angles: int = 8
    groups: int = 0

    def __post_init__(self) -> None:
        """Refuse a scattering transform whose scales do not fit its side."""
        if self.scales < 1 or self.angles < 1 or self.side < 1 or self.side % 2**self.scales:
            raise ValueError(
                "A scattering transform needs at least one scale and angle, and a side that 2^scales divides: "
                f"{self.side} pixels and {self.scales} scales do not fit."
            )
        if self.groups < 0 or (self.groups and self.channels % self.groups):
            raise ValueError(f"{self.channels} channels cannot be divided into {self.groups} groups of equal size.")

    @property
    def name(self) -> str:
        """The scattering extractor's name in a schema, which holds all its parameters."""
        return f"scattering-{self.side}-{self.scales}-{self.angles}" + (f"-{self.groups}" if self.groups else "")

    @property
    def channels(self) -> int:
        """How many averages the scattering transform makes of an image."""
        return 1 + self.scales * self.angles + self.angles**2 * self.scales * (self.scales - 1) // 2

    @property
    def length(self) -> int:
        """How many scattering features an image becomes."""
        pixels: int = (self.side // 2**self.scales) ** 2
        return self.channels * pixels

    @property
    def digest(self) -> str:
        """The SHA-256 of the scattering extractor's definition, which a schema names: its numbers never change."""
        return hashlib.sha256(f"ringfence.sources.features, definition 1: {self.name}".encode()).hexdigest()

    def __call__(self, images: NDArray[np.generic]) -> FloatImages:
        """Return a row of numbers for every image, an array of `side` × `side` finite numbers each."""
        shape = images.shape[1:] if images.ndim == 3 else images.shape
        if images.ndim != 3 or shape != (self.side, self.side):
            raise RecordsError(
                f"The extractor {self.name} takes images of {self.side} × {self.side} pixels, one after the other, "
                f"but was given an array of shape {images.shape}: reshape or resize them."
            )
        numbers = images.astype(np.float32)
        if not np.all(np.isfinite(numbers)):
            raise RecordsError("An image has a pixel that is not a finite number: leave it out, or correct it.")
        parts = [self._chunk(numbers[start : start + CHUNK]) for start in range(0, len(numbers), CHUNK)]
        return np.concatenate(parts) if parts else np.zeros((0, self.length), np.float32)

    def _chunk(self, images: FloatImages) -> FloatImages:
        """Return the scattering features of some images: averages of moduli of one and two wavelets."""
        margin = 2**self.scales
        spectrum = _spectrum(np.pad(images, ((0, 0), (margin, margin), (margin, margin)), mode="reflect"))
        channels = [self._averaged(spectrum)]
        second: list[FloatImages] = []
        for scale, filters in enumerate(self._wavelets):
            for wavelet in filters:
                inner = _spectrum(_modulus(spectrum, wavelet))
                channels.append(self._averaged(inner))
                coarser = [other for later in self._wavelets[scale + 1 :] for other in later]
                second += [self._averaged(_spectrum(_modulus(inner, other))) for other in coarser]
        return self._evened(np.stack(channels + second, axis=1)).reshape(len(images), -1)

    def _evened(self, channels: FloatImages) -> FloatImages:
        """Return every image's groups of channels with mean 0 and variance 1."""
        if not self.groups:
            return channels
        grouped = channels.reshape(len(channels), self.groups, -1)
        shifted = grouped - grouped.mean(axis=2, keepdims=True)
        result: FloatImages = shifted / (shifted.std(axis=2, keepdims=True) + np.float32(FLAT))
        return result

    def _averaged(self, spectrum: NDArray[np.complex64]) -> FloatImages:
        """Return the image of that spectrum, averaged by the Gaussian and read at every 2^scales-th pixel."""
        step = 2**self.scales
        size = spectrum.shape[-1] // step
        folded = (spectrum * self._average).reshape(-1, step, size, step, size).mean(axis=(1, 3))  # aliases add up
        image = scipy.fft.ifft2(folded, overwrite_x=True).real
        return image[:, 1:-1, 1:-1].astype(np.float32)

    @cached_property
    def _wavelets(self) -> tuple[tuple[NDArray[np.float32], ...], ...]:
        """The wavelets' transfer functions, by scale and angle."""
        side, slant = self.side + 2 * 2**self.scales, 4 / self.angles
        return tuple(
            tuple(
                _morlet(side, FINEST_WIDTH * 2**scale, FINEST_FREQUENCY / 2**scale, math.pi * k / self.angles, slant)
                for k in range(self.angles)
            )
            for scale in range(self.scales)
        )

    @cached_property
    def _average(self) -> NDArray[np.float32]:
        """The transfer function of the Gaussian that averages scattering channels."""
        side = self.side + 2 * 2**self.scales
        return _transfer(_envelope(side, FINEST_WIDTH * 2 ** (self.scales - 1), 0.0, 1.0))


def _spectrum(images: FloatImages) -> NDArray[np.complex64]:
    """Return the Fourier transform of images, for a scattering transform."""
    return scipy.fft.fft2(images)


def _modulus(spectrum: NDArray[np.complex64], wavelet: NDArray[np.float32]) -> FloatImages:
    """Return the modulus of an image filtered by a wavelet, for a scattering transform."""
    return np.abs(scipy.fft.ifft2(spectrum * wavelet, overwrite_x=True))


def _turned(side: int, angle: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates along and across a direction, of a grid and of its two neighbours on either side."""
    ticks = np.arange(-2 * side, 3 * side, dtype=np.float64)
    down, right = np.meshgrid(ticks, ticks, indexing="ij")
    return math.cos(angle) * down + math.sin(angle) * right, math.cos(angle) * right - math.sin(angle) * down


def _envelope(side: int, width: float, angle: float, slant: float) -> NDArray[np.float64]:
    """Return a Gaussian, `width` along the direction and width/slant across it, on the grid and its neighbours."""
    along, across = _turned(side, angle)
    return np.exp(-(along**2 + slant**2 * across**2) / (2 * width**2)) * (slant / (2 * math.pi * width**2))


def _morlet(side: int, width: float, frequency: float, angle: float, slant: float) -> NDArray[np.float32]:
    """Return the transfer function of a wave under an envelope, less as much of the envelope as makes its mean 0."""
    envelope = _envelope(side, width, angle, slant)
    wave = envelope * np.exp(1j * frequency * _turned(side, angle)[0])
    return _transfer(wave - envelope * (np.sum(wave) / np.sum(envelope)))


def _transfer(kernel: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the Fourier transform of the kernel laid around the grid as around a torus: real, as it is Hermitian."""
    side = len(kernel) // 5
    around = kernel.reshape(5, side, 5, side).sum(axis=(0, 2))
    return scipy.fft.fft2(around).real.astype(np.float32)
